/* Starting threads. Owns nothing. */
#include "svc/base/system/thread.h"

#include <signal.h>
#include <time.h>

int thread_start(pthread_t *ret_thread, void *(*main)(void *context), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    /* SIGBUS stays unblocked: if a thread causes a SIGBUS that is blocked, the kernel ends the
     * process without calling the handler (S8, S16). */
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = -pthread_create(ret_thread, NULL, main, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void thread_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}
