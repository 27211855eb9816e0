/* Memory of lanes that this thread gets ready for them: pages are added here, not in a lane's turn.
 * Must never hold up a request for want of it: what is not ready the lane gets by itself, or not.
 * README: A73. */
#include "svc/aggregator/aggregator_types.h"
#include "svc/aggregator/arena.h"
#include "svc/aggregator/wanted.h"

#include <stdlib.h>

#define WANTED_AT_ONCE 64

struct coming {
    const struct memory_coming *pieces;
    struct wanted_arrays *rows;
    size_t rest_bytes;
};

static int reckon(struct lane *lane, void *context)
{
    struct coming *coming = context;
    const struct memory_coming *p = coming->pieces;
    return wanted_by_pieces(lane, p->job, p->workers, p->pieces, p->count, coming->rows,
                            &coming->rest_bytes);
}

/* Short arrays lie between other things. */
static size_t prepare_array(struct arena *arena, size_t bytes)
{
    if (bytes < ARENA_PREPARED_LEAST)
        return bytes;
    (void)arena_prepare(arena, bytes);
    return 0;
}

void memory_prepare(struct lane_thread *thread, const struct memory_coming *pieces)
{
    struct arena *arena = lane_thread_arena(thread);
    struct coming coming = {.pieces = pieces,
                            .rows = calloc(pieces->count + 1, sizeof *coming.rows)};
    if (coming.rows && lane_thread_call(thread, reckon, &coming) == 0) {
        for (size_t i = 0; i < pieces->count; i++) {
            coming.rest_bytes += prepare_array(arena, coming.rows[i].state_bytes);
            coming.rest_bytes += prepare_array(arena, coming.rows[i].kept_bytes);
        }
        arena_warm(arena, coming.rest_bytes);
    }
    free(coming.rows);
}

void memory_forget(struct lane_thread *thread) { arena_forget_prepared(lane_thread_arena(thread)); }

struct wishes {
    size_t bytes[WANTED_AT_ONCE], count;
};

static int collect(struct lane *lane, void *context)
{
    struct wishes *wishes = context;
    wishes->count = wanted_by_jobs(lane, wishes->bytes, WANTED_AT_ONCE);
    return 0;
}

static int hand_over(struct lane *lane, void *context)
{
    wanted_is_ready(lane);
    return 0;
}

static void serve_wishes(struct lane_thread *thread)
{
    struct wishes wishes;
    lane_thread_call(thread, collect, &wishes);
    for (size_t i = 0; i < wishes.count; i++)
        (void)prepare_array(lane_thread_arena(thread), wishes.bytes[i]);
    if (wishes.count > 0)
        lane_thread_call(thread, hand_over, NULL);
}

void memory_serve_wishes(struct aggregator *a)
{
    for (size_t i = 0; i < a->lanes_count; i++)
        serve_wishes(a->lanes[i]);
}
