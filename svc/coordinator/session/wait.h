/* Wait: a request that is answered later. */
#ifndef GRADPOOL_COORDINATOR_SESSION_WAIT_H
#define GRADPOOL_COORDINATOR_SESSION_WAIT_H

#include "svc/coordinator/peer/peer.h"

struct wait {
    struct list link, own_link; /* nodes in door.waits and peer.own_waits */
    uint64_t id;
    struct peer *peer;
    uint64_t request; /* id of the request, for the reply */
    struct timer timer;
    void (*expired)(struct wait *wait);
    /* number of the job in which the wait counts as an open request; 0: not counted */
    uint32_t job;
    void *data; /* freed together with the wait */
};

/* Creates a wait. The wait owns `data`, which is freed even after an error. Returns NULL if memory
 * is missing; the failure was then sent to the peer. */
struct wait *wait_create(struct peer *p, uint64_t request, uint64_t timeout_ns,
                         void (*expired)(struct wait *wait), void *data);
/* Stops counting the wait as an open request of the job. The number of open requests is limited
 * (quota.c). */
void wait_uncount(struct wait *wait);
void wait_destroy(struct wait *wait);
struct wait *wait_find(struct service *s, uint64_t id);
void waits_cancel(struct peer *p);

#endif
