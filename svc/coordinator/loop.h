/* The coordinator's event loop: descriptors and timers, one thread. */
#ifndef GRADPOOL_COORDINATOR_LOOP_H
#define GRADPOOL_COORDINATOR_LOOP_H

#include "svc/base/list.h"

#include <stdint.h>

struct loop {
    int epoll_fd;
    struct list timers; /* armed ones, unordered: there are few */
};

/* Embedded in the object that owns the descriptor. fd -1: not watched. */
struct source {
    int fd;
    void (*ready)(struct source *source, uint32_t events);
};

/* Embedded likewise; fires once. */
struct timer {
    struct list link;
    uint64_t deadline_ns;
    void (*expired)(struct timer *timer);
};

int loop_init(struct loop *loop);
void loop_fini(struct loop *loop);

int loop_watch(struct loop *loop, struct source *source, uint32_t events);
int loop_rewatch(struct loop *loop, struct source *source, uint32_t events);
/* Stops watching; the descriptor stays open and source->fd stays. Fine when not watched. */
void loop_unwatch(struct loop *loop, struct source *source);

void timer_init(struct timer *timer, void (*expired)(struct timer *timer));
/* Arms, or moves the deadline of an armed one. */
void timer_start(struct loop *loop, struct timer *timer, uint64_t deadline_ns);
void timer_stop(struct timer *timer);

/* Waits for one event until `deadline_ns` at most, handles it, then handles all timers that are
 * due. One event a call, so a handler may free any other source. */
int loop_step(struct loop *loop, uint64_t deadline_ns);

#endif
