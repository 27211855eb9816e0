/* Which signals end a process of the service. */
#ifndef GRADPOOL_BASE_SYSTEM_SIGNALS_H
#define GRADPOOL_BASE_SYSTEM_SIGNALS_H

#include <signal.h>

/* SIGTERM, SIGINT, and SIGHUP unless whoever started the process has it ignored, as nohup does. To
 * be blocked and read from a signalfd. */
sigset_t signals_that_end(void);

#endif
