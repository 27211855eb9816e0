/* The coordinator's event loop: descriptors, timers and turns, on one thread. */
#ifndef GRADPOOL_COORDINATOR_LOOP_LOOP_H
#define GRADPOOL_COORDINATOR_LOOP_LOOP_H

#include "svc/base/list.h"
#include "svc/coordinator/loop/turns.h"

#include <stdint.h>

struct loop {
    int epoll_fd;
    struct list timers;  /* running timers, in no order */
    struct timer *first; /* the timer that fires next; NULL: not known */
    struct turns turns;
};

/* A watched descriptor. Its owner embeds this struct. fd -1: not watched. */
struct source {
    int fd;
    void (*ready)(struct source *source, uint32_t events);
};

/* A timer, which fires once. Its owner embeds this struct. */
struct timer {
    struct list link;
    struct loop *loop; /* loop of the last timer_start() */
    uint64_t deadline_ns;
    void (*expired)(struct timer *timer);
};

int loop_init(struct loop *loop);

int loop_watch(struct loop *loop, struct source *source, uint32_t events);
/* Watches for other events, and only for one event: afterwards the descriptor is not watched until
 * the next call. */
int loop_rewatch_once(struct loop *loop, struct source *source, uint32_t events);
/* Stops watching. The descriptor stays open, and source->fd keeps its value. Does nothing for a
 * source that is not watched. */
void loop_unwatch(struct loop *loop, struct source *source);

void timer_init(struct timer *timer, void (*expired)(struct timer *timer));
/* Starts the timer, or changes the deadline of a running one. */
void timer_start(struct loop *loop, struct timer *timer, uint64_t deadline_ns);
void timer_stop(struct timer *timer);

/* Waits until `deadline_ns` at most for an event, a timer or a turn. Then handles events (at most
 * 64; they are fetched one by one, so that a handler may free any other source), all due timers,
 * and one turn. Negative: errno of epoll_wait(). */
int loop_step(struct loop *loop, uint64_t deadline_ns);

#endif
