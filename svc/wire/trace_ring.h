/* The record of a round for a timeline, and the ring that stores these records until they are read.
 * One thread at a time adds rounds (several adding threads must share a lock), and another thread
 * removes them. The ring is created when recording starts. Adding a round allocates nothing, takes
 * no lock and waits for no thread. README: W19. */
#ifndef GRADPOOL_WIRE_TRACE_H
#define GRADPOOL_WIRE_TRACE_H

#include "svc/base/clock.h"

#include <stdbool.h>
#include <stddef.h>

/* The steps of a round in their order: the steps that a worker records, then those that a lane
 * records. */
enum trace_worker_step {
    /* the caller has pushed the tensor; the round waits until the previous round is committed */
    TRACE_PUSHED,
    TRACE_BEGUN,     /* the gradient is being copied in */
    TRACE_ANNOUNCED, /* the lanes have its announcement */
    TRACE_LANDED,    /* all pieces of the result have arrived */
    /* the result is being copied to the caller's memory; without a copy, the round is committed */
    TRACE_COPYING,
    TRACE_DONE,
};
enum trace_lane_step {
    TRACE_HEARD,   /* the first rank has announced the round */
    TRACE_READY,   /* the last rank has announced; the round waits for the core */
    TRACE_STARTED, /* reading of the first chunk begins */
    TRACE_SUMMED,  /* the last chunk is summed */
    TRACE_WRITTEN, /* every worker has the result: COMMIT */
};
#define TRACE_STEPS 6

/* A round, in the form that messages contain. If a round has fewer than TRACE_STEPS steps, the time
 * of the last step is repeated. */
struct trace_round {
    uint64_t at_ns[TRACE_STEPS]; /* times of the steps, on the clock of the recorder */
    uint64_t round, bytes;
    /* number of the tensor in a worker's record, number of the piece in a lane's record */
    uint32_t thing;
    uint16_t last;     /* in a lane's record, the rank that announced the round last */
    uint8_t operation; /* a value of enum record_operation */
    uint8_t reserved;
};
_Static_assert(sizeof(struct trace_round) == 72, "no holes");

struct trace_ring;

/* Records the time of a step, on the data path. Without a ring this costs one check. */
static inline void trace_step(const struct trace_ring *ring, uint64_t at_ns[], int step)
{
    if (__builtin_expect(ring != NULL, 0))
        at_ns[step] = clock_now_ns();
}

/* Creates a ring for rounds between these two times. Returns 0, -EINVAL if `rounds` is no power of
 * two, or -ENOMEM. */
int trace_ring_create(uint32_t rounds, uint64_t since_ns, uint64_t until_ns,
                      struct trace_ring **ret_ring);
void trace_ring_destroy(struct trace_ring *ring); /* NULL is fine. */

/* Adds a round; only the recording thread calls this function. A round is dropped if its beginning
 * was not recorded, or if it ends too late. */
void trace_ring_put(struct trace_ring *ring, const struct trace_round *round);
/* Removes the oldest rounds, at most `max`, and returns their number. Only the reading thread calls
 * this function. */
size_t trace_ring_take(struct trace_ring *ring, struct trace_round *ret_rounds, size_t max);
size_t trace_ring_waiting(const struct trace_ring *ring);
/* Returns the number of rounds for which there was no room. */
uint64_t trace_ring_dropped(const struct trace_ring *ring);

/* Returns whether the times of the steps are in order. */
bool trace_round_is_sound(const struct trace_round *round);

#endif
