/* What an operator has ordered to move, while it is carried out. For order.c and its requests. */
#ifndef GRADPOOL_COORDINATOR_ORDER_ORDER_H
#define GRADPOOL_COORDINATOR_ORDER_ORDER_H

#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/service.h"

#define ORDER_TEXT_BYTES 1024

struct order;
/* From the loop, or from within order_leave(): it is over. */
typedef void (*order_done_fn)(struct service *s, const struct order *order);

struct order {
    struct list link; /* in works.orders */
    struct service *service;
    uint64_t id, wait;   /* wait: who is answered when it is done */
    uint32_t lane, task; /* of a move: to there; this one, or 0: all. Lane 0: what leaves lanes */
    uint32_t from_lane, from_aggregator; /* of a drain: one of these, the other is 0 */
    uint32_t lanes;                      /* that it has withheld, or given back */
    uint32_t undone;                     /* that it has withheld, and given back: tasks stay */
    bool has_failed;                     /* a job's tasks stay */
    bool is_stale;                       /* `tasks` may be on lanes that were given back */
    uint32_t *jobs;                      /* numbers; one after the other */
    size_t jobs_count, jobs_at;
    struct task *tasks; /* of the job at hand, that are still to move */
    size_t tasks_count, tasks_at, batch;
    uint64_t patience_ns; /* until when the job at hand may be busy */
    uint64_t pause_ns;    /* before it is looked at again */
    struct timer again;   /* the job at hand may be busy */
    bool ends;            /* `from_aggregator` is to end: whoever is busy is met again soon */
    uint64_t times;       /* its batches are so much larger than others */
    uint64_t began_ns;    /* when the batch on its way began */
    order_done_fn done;   /* of these; NULL: nobody but the peer hears of it */
    uint32_t moved;
    uint64_t state_bytes, longest_ns;
    char stays[ORDER_TEXT_BYTES]; /* what did not move, and why */
};

/* With room for all jobs; NULL: no memory. */
struct order *order_create(struct service *s);
/* All that there are. */
void order_add_jobs(struct order *order);
void order_free(struct order *order);
/* Takes over `order` (with its jobs and what is to move), and answers the request when it is done;
 * it goes on when who asked has gone. */
void order_begin(struct order *order, struct peer *p, uint64_t request);

/* Moves all that is on an aggregator that is to end to other lanes. False: no memory. */
bool order_leave(struct aggregator *a, order_done_fn done);
/* The lane is used again. */
void order_give_back(struct lane *lane, const char *why);

/* It has been given back: what drains under way have not taken from it stays there. */
void orders_lane_back(const struct lane *lane);

void orders_destroy(struct service *s);

#endif
