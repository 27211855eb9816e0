/* Looks at what the aggregators have counted, for all who ask to be shown it. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_LOOKS_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_LOOKS_H

#include "svc/coordinator/loop/loop.h"

struct service;

struct looks {
    uint64_t number;   /* of the newest */
    uint64_t began_ns; /* when it began */
    uint32_t pending;  /* aggregators that have not answered */
    bool is_wanted;    /* another, by somebody who came later */
    struct timer timer;
};

void looks_init(struct looks *looks);
/* One that begins now or later: the next number. Hook look_is_over follows, perhaps at once. */
void looks_ask(struct service *s);

#endif
