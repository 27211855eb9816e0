/* The listening end of fabric_shm: sockets, handshakes and answers of a lane. */
#ifndef GRADPOOL_FABRIC_SHM_LANE_H
#define GRADPOOL_FABRIC_SHM_LANE_H

#include "svc/fabric/shm/conn.h"

/* Makes the fabric one of a lane. -EINVAL: it listens already, or has connected. */
int shm_lane_listen(struct fabric *f, const char *address, char *ret_address);
/* Frees the listener, after all its connections. NULL is fine. */
void shm_lane_close(struct shm_lane *lane);
/* For a forked child: closes the descriptors. NULL is fine. */
void shm_lane_abandon(struct shm_lane *lane);
/* Returns the descriptor on which a lane sleeps, in epoll or poll. */
int shm_lane_fd(const struct shm_lane *lane);
/* Serves the sockets that have events: callers, handshakes, ends of connections. */
void shm_lane_look(struct shm_fabric *f);
int shm_lane_accept(struct fabric_conn *c, void *owner);
void shm_lane_refuse(struct fabric_conn *c, int reason);

#endif
