/* The end of fabric_shm that listens: a lane's sockets, handshakes and answers. */
#ifndef GRADPOOL_FABRIC_SHM_LANE_H
#define GRADPOOL_FABRIC_SHM_LANE_H

#include "svc/fabric/shm/conn.h"

/* Makes the fabric a lane's. -EINVAL: it listens already, or has connected. */
int shm_lane_listen(struct fabric *f, const char *address, char *ret_address);
/* Frees the listener; NULL is fine. The connections are gone. */
void shm_lane_close(struct shm_lane *lane);
/* In a forked child: closes the descriptors. NULL is fine. */
void shm_lane_abandon(struct shm_lane *lane);
/* The descriptor that a lane sleeps on, in epoll or poll. */
int shm_lane_fd(const struct shm_lane *lane);
/* Serves the sockets that have news: callers, handshakes, ends. */
void shm_lane_look(struct shm_fabric *f);
int shm_lane_accept(struct fabric_conn *c, void *owner);
void shm_lane_refuse(struct fabric_conn *c, int reason);

#endif
