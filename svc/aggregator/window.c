/* A job's window: the slots its transfers read into and write from, and thereby what the job can
 * have in flight. The job's own, so that what a stopped worker pins is its job's alone, and no byte
 * of one tenant is ever in another's slot. README: A7. */
#include "svc/aggregator/transfer.h"

#include "svc/base/text.h"

#include <errno.h>
#include <stdio.h>

/* Long chunks of a job in flight, all its workers together. More costs CPU (the data leaves the
 * cache before it is summed), so do shorter slots (each has its price in messages and wake-ups). */
#define WINDOW_BYTES (5u << 20)
#define SLOT_BYTES_LEAST (64u << 10)
#define SLOT_BYTES_MOST (1u << 20)

/* Inputs of one pass, and the result. */
static size_t slots_per_transfer(const struct lane_job *job)
{
    uint32_t workers = job->workers_count;
    return (workers < REDUCE_SOURCES_MAX ? workers : REDUCE_SOURCES_MAX) + 1;
}

size_t window_slot_bytes(const struct lane_job *job)
{
    size_t bytes = WINDOW_BYTES / LARGE_TRANSFERS / slots_per_transfer(job);
    bytes -= bytes % SLOT_BYTES_LEAST;
    if (bytes < SLOT_BYTES_LEAST)
        return SLOT_BYTES_LEAST;
    return bytes > SLOT_BYTES_MOST ? SLOT_BYTES_MOST : bytes;
}

void window_init(struct lane_job *job)
{
    for (int i = 0; i < TRANSFERS_PER_JOB; i++)
        job->transfers[i].slot_bytes =
            i < LARGE_TRANSFERS ? window_slot_bytes(job) : SLOT_BYTES_LEAST;
}

static void unregister_first(struct lane_job *job, void *window, size_t fabrics)
{
    for (size_t i = 0; i < fabrics; i++)
        fabric_pool_unregister(job->lane->options.fabrics[i], window);
}

static int register_all(struct lane_job *job, void *window, size_t bytes)
{
    for (size_t i = 0; i < job->lane->options.fabrics_count; i++) {
        int r = fabric_pool_register(job->lane->options.fabrics[i], window, bytes);
        if (r < 0) {
            unregister_first(job, window, i);
            return r;
        }
    }
    return 0;
}

/* Said once, here: what follows from it would only name a worker that did nothing wrong. Short, so
 * that no part of it is cut off on its way to the workers (RECORD_TEXT_BYTES). */
static int no_memory(struct lane_job *job, size_t bytes)
{
    char wants[32], holds[32], may[64] = "";
    const struct arena *arena = job->lane->options.arena;
    size_t limit_bytes = arena_limit(arena);
    int code = limit_bytes ? -ENOSPC : -ENOMEM;
    if (limit_bytes) {
        char limit[32];
        snprintf(may, sizeof may, " of %s, --lane-memory-max",
                 text_bytes(limit_bytes, limit, sizeof limit));
    }
    job_fail(job, code, "lane %u has no memory for the window of %s (it holds %s%s)",
             job->lane->options.id, text_bytes(bytes, wants, sizeof wants),
             text_bytes(arena_counted_bytes(arena), holds, sizeof holds), may);
    return code;
}

static size_t window_bytes(const struct lane_job *job)
{
    size_t bytes = 0;
    for (int i = 0; i < TRANSFERS_PER_JOB; i++)
        bytes += job->transfers[i].slot_bytes * slots_per_transfer(job);
    return bytes;
}

static void share_out(struct lane_job *job, char *slots)
{
    for (int i = 0; i < TRANSFERS_PER_JOB; i++) {
        job->transfers[i].slots = slots;
        slots += job->transfers[i].slot_bytes * slots_per_transfer(job);
    }
}

int window_open(struct lane_job *job)
{
    size_t bytes = window_bytes(job);
    if (job->window)
        return 0;
    char *window = arena_alloc_aligned(job->lane->options.arena, &job->account, bytes);
    if (!window)
        return no_memory(job, bytes);
    int r = register_all(job, window, bytes);
    if (r < 0) {
        arena_free(job->lane->options.arena, &job->account, window);
        return r;
    }
    share_out(job, window);
    job->window = window;
    return 0;
}

void window_close(struct lane_job *job)
{
    if (!job->window)
        return;
    if (!job->lane->is_closing)
        unregister_first(job, job->window, job->lane->options.fabrics_count);
    arena_free(job->lane->options.arena, &job->account, job->window);
}
