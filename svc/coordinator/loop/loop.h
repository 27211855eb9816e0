/* The coordinator's event loop on its one thread: descriptors, timers and turns. */
#ifndef GRADPOOL_COORDINATOR_LOOP_LOOP_H
#define GRADPOOL_COORDINATOR_LOOP_LOOP_H

#include "svc/base/list.h"
#include "svc/coordinator/loop/turns.h"

#include <stdint.h>

struct loop {
    int epoll_fd;
    struct list timers; /* running timers, unsorted */
    /* timer with the earliest deadline; NULL: not known, so the next reader searches the list */
    struct timer *first;
    struct turns turns;
};

/* A watched descriptor. The struct is a member of its owner. fd -1: not watched. */
struct source {
    int fd;
    void (*ready)(struct source *source, uint32_t events);
};

/* A timer that fires once for each start. The struct is a member of its owner. */
struct timer {
    struct list link;
    struct loop *loop; /* loop of the last timer_start() */
    uint64_t deadline_ns;
    void (*expired)(struct timer *timer);
};

int loop_init(struct loop *loop);

int loop_watch(struct loop *loop, struct source *source, uint32_t events);
/* Watches the descriptor for one event of the set `events`. After this event the descriptor is not
 * watched until the next call. */
int loop_rewatch_once(struct loop *loop, struct source *source, uint32_t events);
/* Stops watching the descriptor, if it is watched. The descriptor stays open, but source->fd keeps
 * its value. */
void loop_unwatch(struct loop *loop, struct source *source);

void timer_init(struct timer *timer, void (*expired)(struct timer *timer));
/* Starts the timer, or changes the deadline of a running timer. */
void timer_start(struct loop *loop, struct timer *timer, uint64_t deadline_ns);
void timer_stop(struct timer *timer);

/* Waits until `deadline_ns` at most for an event, a timer or a turn. Then handles up to 64 events,
 * all due timers, and one turn. Events are fetched one by one, so a handler may free the source of
 * any other event. Returns 0, or the negative errno of epoll_wait(). */
int loop_step(struct loop *loop, uint64_t deadline_ns);

#endif
