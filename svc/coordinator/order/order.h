/* Orders of operators to move tasks, while under way. For order.c and its requests. */
#ifndef GRADPOOL_COORDINATOR_ORDER_ORDER_H
#define GRADPOOL_COORDINATOR_ORDER_ORDER_H

#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/service.h"

#define ORDER_TEXT_BYTES 1024

struct order;
/* End of an order, from the loop or from within order_leave(). */
typedef void (*order_done_fn)(struct service *s, const struct order *order);

struct order {
    struct list link; /* node of works.orders */
    struct service *service;
    uint64_t id, wait; /* wait: the request that the end answers */
    /* Of a move: target lane, and task number (0: all tasks of the job). `lane` is 0 for a
     * drain. */
    uint32_t lane, task;
    uint32_t from_lane, from_aggregator; /* of a drain: one of the two, the other is 0 */
    uint32_t lanes;                      /* lanes that the order withheld or gave back */
    uint32_t undone;                     /* withheld lanes given back, as tasks stayed */
    bool has_failed;                     /* some tasks stay */
    bool is_stale;                       /* lanes of `tasks` may have been given back */
    uint32_t *jobs;                      /* job numbers, handled in order */
    size_t jobs_count, jobs_at;
    struct task *tasks; /* tasks of the current job that have not moved */
    size_t tasks_count, tasks_at, batch;
    uint64_t patience_ns; /* deadline for the current job to be busy */
    uint64_t pause_ns;    /* pause before the next try */
    struct timer again;   /* timer of the next try */
    /* `from_aggregator` is about to end: a busy job is passed over sooner, and tried again by a
     * later order. */
    bool ends;
    uint64_t times;     /* factor of the size of its batches */
    uint64_t began_ns;  /* begin of the batch under way */
    order_done_fn done; /* called at the end; NULL: only the peer is answered */
    uint32_t moved;
    uint64_t state_bytes, longest_ns;
    char stays[ORDER_TEXT_BYTES]; /* text: tasks that did not move, and why */
};

/* Creates an order with room for all jobs. NULL: no memory. */
struct order *order_create(struct service *s);
/* Adds all jobs of the service. */
void order_add_jobs(struct order *order);
void order_free(struct order *order);
/* Begins the order, and owns it from then on. The end answers the request; the order continues when
 * the peer has gone. */
void order_begin(struct order *order, struct peer *p, uint64_t request);

/* Moves all tasks of an aggregator that is about to end to other lanes. False: no memory. */
bool order_leave(struct aggregator *a, order_done_fn done);
/* Gives a withheld lane back, open or parked. */
void order_give_back(struct lane *lane, const char *why);

/* Handles a lane that was given back: drains under way leave its remaining tasks there. */
void orders_lane_back(const struct lane *lane);

void orders_destroy(struct service *s);

#endif
