/* What is recorded of a round for a timeline, and the ring that it waits in: one thread puts (or
 * several, with a lock of their own), another takes. Made when recording starts; putting allocates
 * nothing, takes no lock and waits for nobody. README: W19. */
#ifndef GRADPOOL_WIRE_TRACE_H
#define GRADPOOL_WIRE_TRACE_H

#include "svc/base/clock.h"

#include <stdbool.h>
#include <stddef.h>

/* The steps of a round, in their order, as a worker and as a lane see them. */
enum trace_worker_step {
    TRACE_PUSHED,    /* its caller gave it; queued until the round before is committed */
    TRACE_BEGUN,     /* the gradient is being copied in */
    TRACE_ANNOUNCED, /* the lanes are told */
    TRACE_LANDED,    /* all pieces of the result are here */
    TRACE_COPYING,   /* the result is being copied out; or, where it is not, it is committed */
    TRACE_DONE,
};
enum trace_lane_step {
    TRACE_HEARD,   /* the first rank has announced it */
    TRACE_READY,   /* the last one has; waits for the core */
    TRACE_STARTED, /* its first chunk is read and summed */
    TRACE_SUMMED,  /* its last one is */
    TRACE_WRITTEN, /* every worker has the result: COMMIT */
};
#define TRACE_STEPS 6

/* As it travels. Of one that has fewer steps the last repeats. */
struct trace_round {
    uint64_t at_ns[TRACE_STEPS]; /* of the recorder's clock */
    uint64_t round, bytes;
    uint32_t thing;    /* of a worker the tensor, of a lane the piece */
    uint16_t last;     /* of a lane: the rank that announced last */
    uint8_t operation; /* enum record_operation */
    uint8_t reserved;
};
_Static_assert(sizeof(struct trace_round) == 72, "no holes");

struct trace_ring;

/* On the data path; without a ring nothing is recorded, and this is all that it costs. */
static inline void trace_step(const struct trace_ring *ring, uint64_t at_ns[], int step)
{
    if (__builtin_expect(ring != NULL, 0))
        at_ns[step] = clock_now_ns();
}

/* For rounds between these two times; `rounds` a power of two. -ENOMEM. */
int trace_ring_create(uint32_t rounds, uint64_t since_ns, uint64_t until_ns,
                      struct trace_ring **ret_ring);
void trace_ring_destroy(struct trace_ring *ring); /* NULL is fine */

/* Who puts. One whose beginning was not seen, or whose end came too late, is none. */
void trace_ring_put(struct trace_ring *ring, const struct trace_round *round);
/* Who takes: the oldest, up to `max`; returns how many. */
size_t trace_ring_take(struct trace_ring *ring, struct trace_round *ret_rounds, size_t max);
size_t trace_ring_waiting(const struct trace_ring *ring);
/* That found no room. */
uint64_t trace_ring_dropped(const struct trace_ring *ring);

/* Whether it can be: its steps follow each other. */
bool trace_round_is_sound(const struct trace_round *round);

#endif
