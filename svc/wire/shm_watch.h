/* A thread that waits on descriptors for somebody who can only sleep on a bell: a worker sleeps by
 * futex, and must still learn that a lane has answered or died. It is blocked in epoll unless a
 * socket has news, touches nothing but its own struct and the bell, and uses no CPU in between. */
#ifndef GRADPOOL_WIRE_SHM_WATCH_H
#define GRADPOOL_WIRE_SHM_WATCH_H

#include "svc/wire/shm_bell.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct shm_watch {
    int epoll_fd; /* -1: not started */
    int stop_fd;
    pthread_t thread;
    struct shm_bell *bell;
    _Atomic bool news;
};

void shm_watch_init(struct shm_watch *w);
/* Starts the thread, unless it runs already. The bell must outlive it. */
int shm_watch_start(struct shm_watch *w, struct shm_bell *bell);
void shm_watch_stop(struct shm_watch *w);

/* Rings the bell on news of a socket or a pidfd (-1 is fine). */
int shm_watch_add(struct shm_watch *w, int fd);
void shm_watch_remove(struct shm_watch *w, int fd);

/* Whether there were news since the last call of _take(). */
bool shm_watch_has_news(const struct shm_watch *w);
bool shm_watch_take_news(struct shm_watch *w);

/* In a forked child: closes the descriptors; the thread does not exist there. */
void shm_watch_abandon(struct shm_watch *w);

#endif
