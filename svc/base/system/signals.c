/* The set of signals that end a process. Signal dispositions do not change. A signalfd returns a
 * blocked signal even if the process ignores this signal, so the set contains no ignored signal. */
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
