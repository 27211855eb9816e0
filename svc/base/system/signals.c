/* The set of signals that end a process. Signal dispositions do not change. A signalfd returns a
 * blocked signal even if the process ignores this signal, so the set contains no ignored signal. */
#include "svc/base/system/signals.h"

#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

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

int signals_take_end(int fd)
{
    struct signalfd_siginfo info;
    int number = 0;
    while (read(fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (number == 0 && info.ssi_signo != SIGUSR1 && info.ssi_signo != SIGUSR2)
            number = (int)info.ssi_signo;
    return number;
}
