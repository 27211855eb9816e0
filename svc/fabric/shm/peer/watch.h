/* Thread that waits on descriptors for a worker. The worker sleeps on a futex, and would not
 * notice that a lane has answered or died. The thread blocks in epoll until a socket has an
 * event. It accesses only its own struct and the bell (S9). */
#ifndef GRADPOOL_FABRIC_SHM_PEER_WATCH_H
#define GRADPOOL_FABRIC_SHM_PEER_WATCH_H

#include "svc/fabric/shm/peer/bell.h"

#include <stdbool.h>

struct shm_watch;

/* Starts the thread. The bell must outlive it. Returns 0, -EMFILE, -EAGAIN or -ENOMEM. */
int shm_watch_create(struct shm_bell *bell, struct shm_watch **ret_watch);
/* Ends the thread. NULL is allowed. */
void shm_watch_destroy(struct shm_watch *w);

/* Makes the thread ring the bell at events of a socket or a pidfd; -1 is ignored. */
int shm_watch_add(struct shm_watch *w, int fd);
void shm_watch_remove(struct shm_watch *w, int fd);

/* Returns whether there were events since the last shm_watch_take_news(). */
bool shm_watch_has_news(const struct shm_watch *w);
bool shm_watch_take_news(struct shm_watch *w);

/* Closes the descriptors in a forked child, where the thread does not exist. NULL is allowed. */
void shm_watch_abandon(struct shm_watch *w);

#endif
