/* The coordinator's event loop: descriptors, timers and turns, one thread. */
#ifndef GRADPOOL_COORDINATOR_LOOP_LOOP_H
#define GRADPOOL_COORDINATOR_LOOP_LOOP_H

#include "svc/base/list.h"
#include "svc/coordinator/loop/turns.h"

#include <stdint.h>

struct loop {
    int epoll_fd;
    struct list timers;  /* armed timers, unordered */
    struct timer *first; /* earliest armed timer; NULL: not known */
    struct turns turns;
};

/* Embedded in the owner of the descriptor. fd -1: not watched. */
struct source {
    int fd;
    void (*ready)(struct source *source, uint32_t events);
};

/* Embedded in its owner; fires once. */
struct timer {
    struct list link;
    struct loop *loop; /* loop of the last timer_start() */
    uint64_t deadline_ns;
    void (*expired)(struct timer *timer);
};

int loop_init(struct loop *loop);

int loop_watch(struct loop *loop, struct source *source, uint32_t events);
/* Watches for other events, and only for the next one: after it the source is not watched until the
 * next call. */
int loop_rewatch_once(struct loop *loop, struct source *source, uint32_t events);
/* Stops watching. The descriptor stays open, and source->fd keeps its value. No effect on an
 * unwatched source. */
void loop_unwatch(struct loop *loop, struct source *source);

void timer_init(struct timer *timer, void (*expired)(struct timer *timer));
/* Arms the timer, or moves the deadline of an armed one. */
void timer_start(struct loop *loop, struct timer *timer, uint64_t deadline_ns);
void timer_stop(struct timer *timer);

/* Waits until `deadline_ns` at most for an event, a timer or a turn. Handles waiting events (at
 * most 64, each fetched alone, so that a handler may free any other source), then all due timers,
 * then one turn. Negative: errno of epoll_wait(). */
int loop_step(struct loop *loop, uint64_t deadline_ns);

#endif
