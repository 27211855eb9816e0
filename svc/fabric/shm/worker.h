/* The connecting end of fabric_shm: handshake, fence and leave of a worker. */
#ifndef GRADPOOL_FABRIC_SHM_WORKER_H
#define GRADPOOL_FABRIC_SHM_WORKER_H

#include "svc/fabric/shm/conn.h"

/* Functions for fabrics that do not listen. */
extern const struct shm_side shm_worker_side;

int shm_worker_connect(struct fabric *f, const char *address, const void *ticket,
                       size_t ticket_bytes, void *owner, struct fabric_conn **ret_conn);
/* Sends BYE to the lane. CLOSED is reported when the lane has closed its end of the socket (S11). A
 * fence also kills the lane if its end is still open after FABRIC_FENCE_NS. */
void shm_worker_leave(struct fabric_conn *c);
void shm_worker_fence(struct fabric_conn *c);
/* If the watch has reported an event, checks all connections. */
void shm_worker_look(struct shm_fabric *f);

#endif
