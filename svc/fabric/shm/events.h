/* Reports the events of one connection of fabric_shm in their order. */
#ifndef GRADPOOL_FABRIC_SHM_EVENTS_H
#define GRADPOOL_FABRIC_SHM_EVENTS_H

#include "svc/fabric/shm/conn.h"

/* Writes at most `events_max` (at least one) events. Returns their number. */
int shm_events_take(struct shm_conn *c, struct fabric_event *events, int events_max);
/* Returns whether the connection has an event or other work for the next poll. */
bool shm_events_are_due(struct shm_conn *c);

#endif
