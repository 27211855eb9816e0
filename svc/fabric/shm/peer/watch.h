/* A thread that waits on descriptors in place of a worker, which sleeps on a bell by futex and must
 * still learn that a lane has answered or died. The thread is blocked in epoll unless a socket has
 * news, and touches nothing but its own struct and the bell (S9). */
#ifndef GRADPOOL_FABRIC_SHM_PEER_WATCH_H
#define GRADPOOL_FABRIC_SHM_PEER_WATCH_H

#include "svc/fabric/shm/peer/bell.h"

#include <stdbool.h>

struct shm_watch;

/* Starts the thread. The bell must outlive it. -EMFILE, -EAGAIN, -ENOMEM. */
int shm_watch_create(struct shm_bell *bell, struct shm_watch **ret_watch);
/* Ends the thread. NULL is fine. */
void shm_watch_destroy(struct shm_watch *w);

/* Rings the bell on news of a socket or a pidfd (-1 is fine). */
int shm_watch_add(struct shm_watch *w, int fd);
void shm_watch_remove(struct shm_watch *w, int fd);

/* Whether there were news since the last shm_watch_take_news(). */
bool shm_watch_has_news(const struct shm_watch *w);
bool shm_watch_take_news(struct shm_watch *w);

/* In a forked child: closes the descriptors; the thread does not exist there. NULL is fine. */
void shm_watch_abandon(struct shm_watch *w);

#endif
