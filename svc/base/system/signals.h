/* Which signals end a process of the service. */
#ifndef GRADPOOL_BASE_SYSTEM_SIGNALS_H
#define GRADPOOL_BASE_SYSTEM_SIGNALS_H

#include <signal.h>

/* SIGTERM, SIGINT, and SIGHUP unless the process was started with SIGHUP ignored, as nohup does.
 * The caller blocks them and reads them from a signalfd. */
sigset_t signals_that_end(void);

#endif
