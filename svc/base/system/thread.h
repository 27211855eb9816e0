/* Threads of the library, beside the threads of the program that uses it. */
#ifndef GRADPOOL_BASE_SYSTEM_THREAD_H
#define GRADPOOL_BASE_SYSTEM_THREAD_H

#include <pthread.h>

/* Starts a thread with all signals blocked, so that the program's threads receive them. Returns 0
 * or a negative errno. */
int thread_start(pthread_t *ret_thread, void *(*main)(void *context), void *context);
/* Initializes a condition variable whose waits use the clock of clock_now_ns(). */
void thread_condition_init(pthread_cond_t *condition);

#endif
