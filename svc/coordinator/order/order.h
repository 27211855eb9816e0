/* Orders in progress. An operator orders the service to move tasks. Used by order.c and the files
 * that receive the requests. */
#ifndef GRADPOOL_COORDINATOR_ORDER_ORDER_H
#define GRADPOOL_COORDINATOR_ORDER_ORDER_H

#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/service.h"

#define ORDER_TEXT_BYTES 1024

struct order;
/* Called at the end of an order, by the event loop or by order_leave(). */
typedef void (*order_done_fn)(struct service *s, const struct order *order);

struct order {
    struct list link; /* node in works.orders */
    struct service *service;
    uint64_t id, wait; /* wait: number of the open request that is answered when the order ends */
    /* For a move: number of the target lane, and of the task (0: all tasks of the job). For a
     * drain, `lane` is 0. */
    uint32_t lane, task;
    uint32_t from_lane, from_aggregator; /* for a drain, one of these is set; the other is 0 */
    /* number of lanes that the order withheld or made usable again */
    uint32_t lanes;
    /* number of lanes that were opened again, because some of their tasks could not be moved */
    uint32_t undone;
    bool has_failed; /* some tasks could not be moved */
    /* some lanes of `tasks` may have opened again, so a new plan is needed */
    bool is_stale;
    uint32_t *jobs; /* numbers of the jobs, in the order in which they are handled */
    size_t jobs_count, jobs_at;
    struct task *tasks; /* tasks of the current job that the order has still to move */
    size_t tasks_count, tasks_at, batch;
    uint64_t patience_ns; /* time until which the order waits for a busy job */
    uint64_t pause_ns;    /* pause before the next attempt */
    struct timer again;   /* timer of the next attempt */
    /* `from_aggregator` is about to end. The order waits less for a busy job, because a further
     * order will try the job again. */
    bool ends;
    uint64_t times;     /* factor by which batches are larger than usual */
    uint64_t began_ns;  /* time at which the current batch began */
    order_done_fn done; /* function called at the end; NULL: the order only answers the request */
    uint32_t moved;
    uint64_t state_bytes, longest_ns;
    char stays[ORDER_TEXT_BYTES]; /* sentence about the tasks that did not move, with the reason */
};

/* Creates an order with room for all jobs. Returns NULL if memory is missing. */
struct order *order_create(struct service *s);
void order_add_jobs(struct order *order);
void order_free(struct order *order);
/* Begins the order and owns it from then on. The request is answered at the end. The order
 * continues even if the peer disconnects. */
void order_begin(struct order *order, struct peer *p, uint64_t request);

/* Moves all tasks of an ending aggregator to other lanes. Returns false if memory is missing. */
bool order_leave(struct aggregator *a, order_done_fn done);
/* Ends the drain of a withheld lane, which is then open or parked. */
void order_give_back(struct lane *lane, const char *why);

/* Called when the drain of a lane has ended. An order that also drains other lanes moves no more
 * tasks away from this lane. */
void orders_lane_back(const struct lane *lane);

void orders_destroy(struct service *s);

#endif
