/* Signals that end a process of the service. */
#ifndef GRADPOOL_BASE_SYSTEM_SIGNALS_H
#define GRADPOOL_BASE_SYSTEM_SIGNALS_H

#include <signal.h>

/* Returns SIGTERM, SIGINT and SIGHUP. SIGHUP is left out if the process was started with SIGHUP
 * ignored, for example by nohup. The caller blocks these signals and reads them from a signalfd. */
sigset_t signals_that_end(void);
/* Reads all signals of a signalfd that does not block. Returns the first signal that ends the
 * process. Returns 0 if no signal has arrived, or only SIGUSR1 and SIGUSR2. */
int signals_take_end(int fd);

#endif
