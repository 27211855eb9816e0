/* Threads beside those of the program that this one is a part of. */
#ifndef GRADPOOL_BASE_SYSTEM_THREAD_H
#define GRADPOOL_BASE_SYSTEM_THREAD_H

#include <pthread.h>

/* Starts a thread that takes no signals: those are for the threads of the program. 0, or a negative
 * errno. */
int thread_start(pthread_t *ret_thread, void *(*main)(void *context), void *context);
/* A condition whose waits are measured by the clock of clock_now_ns(). */
void thread_condition_init(pthread_cond_t *condition);

#endif
