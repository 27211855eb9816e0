/* The set of signals that end a process. Signal dispositions do not change. A blocked signal can be
 * read from a signalfd even if it is ignored, so an ignored signal must not be in the set. */
#include "svc/base/system/signals.h"

#include <stddef.h>

sigset_t signals_that_end(void)
{
    struct sigaction hangup = {0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaction(SIGHUP, NULL, &hangup);
    if (hangup.sa_handler != SIG_IGN)
        sigaddset(&set, SIGHUP);
    return set;
}
