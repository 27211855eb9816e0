/* The coordinator's event loop: descriptors, timers and turns, one thread. */
#ifndef GRADPOOL_COORDINATOR_LOOP_LOOP_H
#define GRADPOOL_COORDINATOR_LOOP_LOOP_H

#include "svc/base/list.h"
#include "svc/coordinator/loop/turns.h"

#include <stdint.h>

struct loop {
    int epoll_fd;
    struct list timers;  /* armed ones, unordered */
    struct timer *first; /* the earliest of them; NULL: to be looked for */
    struct turns turns;
};

/* Embedded in the object that owns the descriptor. fd -1: not watched. */
struct source {
    int fd;
    void (*ready)(struct source *source, uint32_t events);
};

/* Embedded likewise; fires once. */
struct timer {
    struct list link;
    struct loop *loop; /* where it is armed, or was last */
    uint64_t deadline_ns;
    void (*expired)(struct timer *timer);
};

int loop_init(struct loop *loop);

int loop_watch(struct loop *loop, struct source *source, uint32_t events);
/* From now on watches for other events, for the next one alone: then the source is not watched
 * until the next call. */
int loop_rewatch_once(struct loop *loop, struct source *source, uint32_t events);
/* Stops watching; the descriptor stays open and source->fd stays. Fine when not watched. */
void loop_unwatch(struct loop *loop, struct source *source);

void timer_init(struct timer *timer, void (*expired)(struct timer *timer));
/* Arms, or moves the deadline of an armed one. */
void timer_start(struct loop *loop, struct timer *timer, uint64_t deadline_ns);
void timer_stop(struct timer *timer);

/* Waits until `deadline_ns` at most for an event, a timer or a turn. Handles the events that are
 * there (64 at most; each is fetched alone, so that a handler may free any other source), then all
 * timers that are due, then one turn. */
int loop_step(struct loop *loop, uint64_t deadline_ns);

#endif
