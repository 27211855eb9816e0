/* Runs all workers of a job on this host, one process each. */
#include "bench/push/push.h"

#include "bench/lib/host.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int run_rank(const struct push_options *options, uint32_t rank)
{
    struct push_options mine = *options;
    mine.rank = rank;
    return push_report(&mine);
}

int local_run(const struct push_options *options)
{
    int failed = 0, status;
    uint32_t started = 0;
    for (; started < options->workers; started++) {
        pid_t pid = process_fork(SIGTERM);
        if (pid == 0)
            _exit(run_rank(options, started));
        if (pid < 0) {
            perror("gradpool-bench: fork");
            failed = 1;
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++) {
        while (wait(&status) < 0 && errno == EINTR) {
        }
        failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    return failed;
}
