/* Memory that the control thread prepares for lanes, so that page faults happen on this thread and
 * not during a lane's turn. No request waits for memory: the lane itself allocates memory that was
 * not prepared. svc/lane/RULES.md: A73. */
#include "svc/aggregator/internal.h"
#include "svc/base/system/cgroup.h"
#include "svc/base/text.h"
#include "svc/lane/memory/arena.h"
#include "svc/lane/wanted.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define WANTED_AT_ONCE 64
#define LOOK_BYTES_LEAST (256u << 10)

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

/* Prepares the pages of a long array, and returns 0. For a short array, returns its bytes: short
 * arrays share pages, which the caller prepares together. */
static size_t prepare_array(struct arena *arena, size_t bytes)
{
    if (bytes < ARENA_PREPARED_LEAST)
        return bytes;
    (void)arena_prepare(arena, bytes);
    return 0;
}

static uint64_t bytes_of(const struct coming *coming)
{
    uint64_t bytes = coming->rest_bytes;
    for (size_t i = 0; i < coming->pieces->count; i++)
        bytes += coming->rows[i].state_bytes + coming->rows[i].kept_bytes;
    return bytes;
}

/* Checks that the memory cgroup has enough memory left, because the kernel kills a process that
 * exceeds the limit. A small amount is not checked, because reading the cgroup's files would cost
 * more. */
static int check_cgroup(uint64_t bytes, char *ret_text, size_t room)
{
    char needs[32], limit[32], left[32];
    struct cgroup_memory memory = {0};
    if (bytes >= LOOK_BYTES_LEAST)
        memory = cgroup_memory("");
    if (cgroup_memory_fits(&memory, bytes))
        return 0;
    snprintf(ret_text, room,
             "%s, and the aggregator's memory cgroup has %s left of %s (%s); raise that limit",
             text_bytes(bytes, needs, sizeof needs),
             text_bytes(memory.left_bytes, left, sizeof left),
             text_bytes(memory.limit_bytes, limit, sizeof limit), memory.file);
    return -ENOSPC;
}

static void prepare_all(struct arena *arena, struct coming *coming)
{
    for (size_t i = 0; i < coming->pieces->count; i++) {
        coming->rest_bytes += prepare_array(arena, coming->rows[i].state_bytes);
        coming->rest_bytes += prepare_array(arena, coming->rows[i].kept_bytes);
    }
    arena_warm(arena, coming->rest_bytes);
}

int memory_prepare(struct lane_thread *thread, const struct memory_coming *pieces,
                   char ret_text[ERR_TEXT_BYTES])
{
    struct coming coming = {.pieces = pieces,
                            .rows = calloc(pieces->count + 1, sizeof *coming.rows)};
    int error = 0;
    if (coming.rows && lane_thread_call(thread, reckon, &coming) == 0) {
        error = check_cgroup(bytes_of(&coming), ret_text, ERR_TEXT_BYTES);
        if (error == 0)
            prepare_all(lane_thread_arena(thread), &coming);
    }
    free(coming.rows);
    return error;
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
    wanted_is_ready(lane, context);
    return 0;
}

static void serve_wishes(struct lane_thread *thread)
{
    struct wishes wishes;
    char why[ERR_TEXT_BYTES] = "";
    uint64_t bytes = 0;
    lane_thread_call(thread, collect, &wishes);
    for (size_t i = 0; i < wishes.count; i++)
        bytes += wishes.bytes[i];
    int error = check_cgroup(bytes, why, sizeof why);
    for (size_t i = 0; error == 0 && i < wishes.count; i++)
        (void)prepare_array(lane_thread_arena(thread), wishes.bytes[i]);
    if (wishes.count > 0)
        lane_thread_call(thread, hand_over, error < 0 ? why : NULL);
}

void memory_serve_wishes(struct aggregator *a)
{
    for (size_t i = 0; i < a->lanes_count; i++)
        serve_wishes(a->lanes[i]);
}
