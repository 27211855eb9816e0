/* Local aggregators: which should run, their slots and processes. */
#ifndef GRADPOOL_COORDINATOR_FLEET_FLEET_H
#define GRADPOOL_COORDINATOR_FLEET_FLEET_H

#include "svc/coordinator/fleet/provisioner.h"
#include "svc/coordinator/loop/loop.h"

#define RESTARTS_MAX 5                     /* starts of one slot within RESTARTS_PERIOD_NS */
#define RESTARTS_PERIOD_NS (60 * NS_PER_S) /* period of that limit */
#define START_FAILURES_MAX 3               /* failed starts in a row, then the service ends */

struct aggregator;
struct service;

struct slot {
    struct service *service;
    uint32_t number; /* number of the slot, from 1 */
    char cores[256];
    char grant[33];
    uint16_t data_port;
    /* lanes_count: lanes of the slot's aggregator; open_count: how many of them are open after its
     * join. */
    uint32_t lanes_count, open_count;
    bool is_wanted;      /* an aggregator should run */
    uint64_t stop_by_ns; /* not wanted: deadline of the present step of its end */
    bool was_asked_to_go;
    struct provisioned process;
    struct source watch;              /* fd -1: the slot has no process of this coordinator */
    uint64_t starts_ns[RESTARTS_MAX]; /* ring of the last starts */
    uint32_t starts;
    uint32_t start_failures; /* in a row: ended by itself before a join */
    bool has_joined;         /* the running process has joined */
    struct timer again;
};

struct fleet {
    struct service *service;
    struct provisioner *provisioner;
    struct slot *slots;
    size_t slots_count;
    struct list farewells; /* processes without a slot (farewell.c) */
    struct timer leave_timer;
    /* Called when all aggregators that end with the service have handed over (order/leaving.c);
     * NULL: no such end is under way. */
    void (*leave_done)(struct service *s);
};

/* Creates the fleet without slots. -ENOMEM. */
int fleet_create(struct service *s);
/* Creates options.aggregators slots and shares the cores among them. */
int fleet_init(struct service *s, struct err *err);
/* Starts missing processes, and continues ends that are under way. */
void fleet_check(struct service *s);
struct slot *fleet_slot_of_grant(struct service *s, const char *grant);
void fleet_joined(struct slot *slot);
/* Makes the slot wanted; after its join `open_count` lanes are open. */
void fleet_want(struct slot *slot, size_t open_count);
/* Starts the end of a local aggregator: its replicas are handed over, then it drains. The slot is
 * free afterwards. */
void fleet_release(struct aggregator *a);
size_t fleet_wanted(const struct service *s);
/* Whether more local aggregators are wanted than fleet_least(). */
bool fleet_may_stop(const struct service *s);
/* Number of local aggregators that never stop for want of load. */
size_t fleet_least(const struct service *s);
/* Makes more slots wanted, up to fleet_least(). */
void fleet_want_another(struct service *s);
/* Whether the slot's aggregator is expected to join soon. */
bool fleet_is_coming(const struct slot *slot);
bool fleet_is_any_coming(const struct service *s);
/* Whether the slot is free and not wanted, so that growth may start it. */
bool fleet_may_start(const struct slot *slot);
/* Whether a wanted slot has no aggregator yet. */
bool fleet_expects_more(const struct service *s);
void fleet_drain(struct service *s, bool now);
/* Kills local processes that have not joined: no job has a task there. */
void fleet_end_starting(struct service *s);
bool fleet_is_gone(const struct service *s);
void fleet_destroy(struct service *s);
/* Kills the process of the aggregator, if this coordinator started it and it still runs. */
void fleet_kill(const struct aggregator *a);

#endif
