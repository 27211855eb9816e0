/* Local aggregators: their slots, their processes, and which of them should run. */
#ifndef GRADPOOL_COORDINATOR_FLEET_FLEET_H
#define GRADPOOL_COORDINATOR_FLEET_FLEET_H

#include "svc/coordinator/fleet/provisioner.h"
#include "svc/coordinator/loop/loop.h"

#define RESTARTS_MAX 5 /* maximum number of starts of one slot within RESTARTS_PERIOD_NS */
#define RESTARTS_PERIOD_NS (60 * NS_PER_S)
#define START_FAILURES_MAX 3 /* number of consecutive failed starts after which the service ends */

struct aggregator;
struct service;

typedef void (*leave_done_fn)(struct service *s);

struct slot {
    struct service *service;
    uint32_t number; /* number of the slot, from 1 */
    char cores[256];
    char grant[33];
    uint16_t data_port;
    /* lanes_count: number of lanes of the slot's aggregator. open_count: number of these lanes that
     * open when the aggregator joins. */
    uint32_t lanes_count, open_count;
    bool is_wanted; /* an aggregator should run in this slot */
    /* if not wanted: deadline of the current step of stopping the aggregator */
    uint64_t stop_by_ns;
    bool was_asked_to_go;
    struct provisioned process;
    /* pidfd of the process; fd -1: no process of this coordinator runs in the slot */
    struct source watch;
    uint64_t starts_ns[RESTARTS_MAX]; /* times of the last starts, in a ring */
    uint32_t starts;
    /* number of consecutive processes that ended before they joined, without an order to end */
    uint32_t start_failures;
    bool has_joined; /* the current process has joined */
    struct timer again;
};

struct fleet {
    struct service *service;
    struct provisioner *provisioner;
    struct slot *slots;
    size_t slots_count;
    struct list farewells; /* ending processes whose slots were freed (farewell.c) */
    struct timer leave_timer;
    /* Called when all aggregators that end with the service have moved their tasks and replicas
     * away (order/leaving.c). NULL: no such move is in progress. */
    leave_done_fn leave_done;
};

/* Creates a fleet without slots. Returns 0 or -ENOMEM. */
int fleet_create(struct service *s);
/* Creates options.aggregators slots and divides the cores among them. */
int fleet_init(struct service *s, struct err *err);
/* Starts the missing processes, and continues to stop processes that are no longer wanted. */
void fleet_check(struct service *s);
struct slot *fleet_slot_of_grant(struct service *s, const char *grant);
void fleet_joined(struct slot *slot);
/* Marks the slot as wanted. `open_count` lanes open when its aggregator joins. */
void fleet_want(struct slot *slot, size_t open_count);
/* Begins to stop a local aggregator. Its replicas move away, and the aggregator is drained. Then
 * the slot is free. */
void fleet_release(struct aggregator *a);
size_t fleet_wanted(const struct service *s);
bool fleet_may_stop(const struct service *s);
/* Returns the number of local aggregators that run even without load. */
size_t fleet_least(const struct service *s);
/* Marks more slots as wanted, until fleet_least() slots are wanted. */
void fleet_want_another(struct service *s);
/* Returns whether an aggregator is expected to join in this slot soon. */
bool fleet_is_coming(const struct slot *slot);
bool fleet_is_any_coming(const struct service *s);
/* Returns whether growth may start the slot: it is free and not wanted. */
bool fleet_may_start(const struct slot *slot);
/* Returns whether a wanted slot has no aggregator yet. */
bool fleet_expects_more(const struct service *s);
void fleet_drain(struct service *s, bool now);
/* Kills the local processes that have not joined. These processes have no tasks. */
void fleet_end_starting(struct service *s);
bool fleet_is_gone(const struct service *s);
void fleet_destroy(struct service *s);
/* Kills the aggregator's process, if this coordinator has started it and it still runs. */
void fleet_kill(const struct aggregator *a);

#endif
