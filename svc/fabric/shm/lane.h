/* The listening end of fabric_shm: sockets, handshakes and answers of a lane. */
#ifndef GRADPOOL_FABRIC_SHM_LANE_H
#define GRADPOOL_FABRIC_SHM_LANE_H

#include "svc/fabric/shm/conn.h"

/* Makes the fabric the fabric of a lane. Returns 0 or a negative errno; -EINVAL: it listens
 * already, or has connected. */
int shm_lane_listen(struct fabric *f, const char *address, char *ret_address);
/* Frees the listener. Called after all its connections are freed. NULL is allowed. */
void shm_lane_close(struct shm_lane *lane);
/* Closes the descriptors in a forked child. NULL is allowed. */
void shm_lane_abandon(struct shm_lane *lane);
/* Returns the descriptor for epoll or poll, on which a lane sleeps. */
int shm_lane_fd(const struct shm_lane *lane);
/* Accepts new callers, continues handshakes and detects ends of connections, for all sockets with
 * events. */
void shm_lane_look(struct shm_fabric *f);
int shm_lane_accept(struct fabric_conn *c, void *owner);
void shm_lane_refuse(struct fabric_conn *c, int reason);

#endif
