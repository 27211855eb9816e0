/* Order in which a poll checks connections and groups of connections. */
#ifndef GRADPOOL_FABRIC_SHM_SCAN_H
#define GRADPOOL_FABRIC_SHM_SCAN_H

#include "svc/fabric/shm/conn.h"

/* Implements take() of fabric_turns: writes a few events of the connection that contains `node`. */
int shm_scan_take(struct list *node, struct fabric_event *events, int events_max);
/* Implements fabric_join_group(). */
void shm_scan_join(struct fabric_conn *c, struct fabric_group *group);

#endif
