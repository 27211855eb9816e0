/* The local aggregators that should run, and other processes on this host. */
#ifndef GRADPOOL_COORDINATOR_FLEET_FLEET_H
#define GRADPOOL_COORDINATOR_FLEET_FLEET_H

#include "svc/coordinator/fleet/provisioner.h"
#include "svc/coordinator/loop/loop.h"

#define RESTARTS_MAX 5                     /* of one local aggregator ... */
#define RESTARTS_PERIOD_NS (60 * NS_PER_S) /* ... within this time */
#define START_FAILURES_MAX 3               /* in a row, and the service ends */

struct aggregator;
struct service;

struct slot {
    struct service *service;
    uint32_t number; /* from 1 */
    char cores[256];
    char grant[33];
    uint16_t data_port;
    uint32_t lanes_count, open_count; /* that it brings; of these, open as soon as it is there */
    bool is_wanted;                   /* it runs, or is started */
    uint64_t stop_by_ns;              /* not wanted: asked to go, then ended, if it still runs */
    bool was_asked_to_go;
    struct provisioned process;
    struct source watch;              /* fd -1: none runs that we started */
    uint64_t starts_ns[RESTARTS_MAX]; /* ring */
    uint32_t starts;
    uint32_t start_failures; /* in a row: gave up before it had joined */
    bool has_joined;         /* the one that runs */
    struct timer again;
};

struct fleet {
    struct service *service;
    struct provisioner *provisioner;
    struct slot *slots;
    size_t slots_count;
    struct list farewells; /* processes that leave their slots (farewell.c) */
    struct timer leave_timer;
    void (*leave_done)(
        struct service *s); /* all that end with the service leave (order/leaving.c) */
};

/* Without slots. -ENOMEM. */
int fleet_create(struct service *s);
/* One slot for each of options.aggregators. */
int fleet_init(struct service *s, struct err *err);
/* Starts what is missing. */
void fleet_check(struct service *s);
struct slot *fleet_slot_of_grant(struct service *s, const char *grant);
void fleet_joined(struct slot *slot);
/* Has it run, with so many lanes open. */
void fleet_want(struct slot *slot, size_t open_count);
/* Has a local aggregator hand over what it keeps, drain and end; its slot is free then. */
void fleet_release(struct aggregator *a);
size_t fleet_wanted(const struct service *s);
/* Whether more run than must, so that there may be one to stop. */
bool fleet_may_stop(const struct service *s);
/* So many are never stopped for want of load. */
size_t fleet_least(const struct service *s);
/* Starts what is missing to that, if it may be started. */
void fleet_want_another(struct service *s);
/* It is being started. */
bool fleet_is_coming(const struct slot *slot);
bool fleet_is_any_coming(const struct service *s);
/* It is not wanted, and could be started. */
bool fleet_may_start(const struct slot *slot);
/* Whether a local aggregator is about to come. */
bool fleet_expects_more(const struct service *s);
void fleet_drain(struct service *s, bool now);
/* Kills those that have not joined: no lane of theirs serves anybody. */
void fleet_end_starting(struct service *s);
bool fleet_is_gone(const struct service *s);
void fleet_destroy(struct service *s);
/* Kills the process of an aggregator that was started here and has not ended. */
void fleet_kill(const struct aggregator *a);

#endif
