/* Requests that are answered later. */
#ifndef GRADPOOL_COORDINATOR_SESSION_WAIT_H
#define GRADPOOL_COORDINATOR_SESSION_WAIT_H

#include "svc/coordinator/peer/peer.h"

struct wait {
    struct list link, own_link; /* in those of the service, of the peer */
    uint64_t id;
    struct peer *peer;
    uint64_t request; /* the id that the reply must carry */
    struct timer timer;
    void (*expired)(struct wait *wait);
    uint32_t job; /* whose request it is; 0: nobody's */
    void *data;   /* freed with it */
};

/* Takes over `data`. NULL: no memory, and the peer was told. */
struct wait *wait_create(struct peer *p, uint64_t request, uint64_t timeout_ns,
                         void (*expired)(struct wait *wait), void *data);
/* It is none of its job's requests, of which there may be so many (quota.c). */
void wait_uncount(struct wait *wait);
void wait_destroy(struct wait *wait);
struct wait *wait_find(struct service *s, uint64_t id);
void waits_cancel(struct peer *p);

#endif
