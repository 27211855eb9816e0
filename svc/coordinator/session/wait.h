/* Requests that are answered later. */
#ifndef GRADPOOL_COORDINATOR_SESSION_WAIT_H
#define GRADPOOL_COORDINATOR_SESSION_WAIT_H

#include "svc/coordinator/peer/peer.h"

struct wait {
    struct list link, own_link; /* nodes of door.waits and peer.own_waits */
    uint64_t id;
    struct peer *peer;
    uint64_t request; /* id that the reply must have */
    struct timer timer;
    void (*expired)(struct wait *wait);
    uint32_t job; /* job whose open request it is; 0: not counted */
    void *data;   /* freed with the wait */
};

/* Creates a wait, which owns `data`, also on failure. NULL: no memory, and the peer has got the
 * failure. */
struct wait *wait_create(struct peer *p, uint64_t request, uint64_t timeout_ns,
                         void (*expired)(struct wait *wait), void *data);
/* Takes the wait out of the job's number of open requests, which is limited (quota.c). */
void wait_uncount(struct wait *wait);
void wait_destroy(struct wait *wait);
struct wait *wait_find(struct service *s, uint64_t id);
void waits_cancel(struct peer *p);

#endif
