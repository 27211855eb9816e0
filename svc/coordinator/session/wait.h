/* Waits: requests that are answered later. */
#ifndef GRADPOOL_COORDINATOR_SESSION_WAIT_H
#define GRADPOOL_COORDINATOR_SESSION_WAIT_H

#include "svc/coordinator/peer/peer.h"

struct wait {
    struct list link, own_link; /* nodes in door.waits and peer.own_waits */
    uint64_t id;
    struct peer *peer;
    uint64_t request; /* id for the reply */
    struct timer timer;
    void (*expired)(struct wait *wait);
    uint32_t job; /* job to whose open requests the wait counts; 0: not counted */
    void *data;   /* freed together with the wait */
};

/* Creates a wait, which owns `data`, even after an error. NULL: no memory, and the peer was sent
 * the failure. */
struct wait *wait_create(struct peer *p, uint64_t request, uint64_t timeout_ns,
                         void (*expired)(struct wait *wait), void *data);
/* No longer counts the wait as an open request of the job; their number is limited (quota.c). */
void wait_uncount(struct wait *wait);
void wait_destroy(struct wait *wait);
struct wait *wait_find(struct service *s, uint64_t id);
void waits_cancel(struct peer *p);

#endif
