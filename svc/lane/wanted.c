/* Computes for the control thread how much memory a lane will allocate. Allocates no memory.
 * RULES.md: A73. */
#include "svc/lane/wanted.h"

#include "svc/lane/job.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/kept.h"
#include "svc/lane/state/parameters.h"
#include "svc/lane/turn/policy.h"
#include "svc/lane/worker/window.h"

#include <errno.h>

static void add_piece(const struct lane_piece *spec, uint32_t workers, struct wanted_arrays *row,
                      size_t *rest_bytes)
{
    size_t bytes = spec->elements * reduce_element_bytes(spec->dtype);
    if (spec->terms.rule && update_moments(spec->terms.rule) >= 0)
        row->state_bytes = parameters_bytes(spec->terms.rule, spec->elements);
    row->kept_bytes = kept_bytes(&spec->terms, bytes);
    *rest_bytes += sizeof(struct piece) + (workers + 1) * sizeof(struct rank);
}

static int check_room(const struct lane *lane, const struct lane_job *job, size_t bytes)
{
    const struct arena *arena = lane->options.arena;
    size_t most = arena_limit(arena), job_most = arena_account_limit(arena);
    size_t held = arena_counted_bytes(arena), job_held = job ? job->account.bytes : 0;
    if (job_most && (job_held > job_most || bytes > job_most - job_held))
        return -EDQUOT;
    return most && (held > most || bytes > most - held) ? -ENOSPC : 0;
}

int wanted_by_pieces(struct lane *lane, uint32_t job_id, uint32_t workers,
                     const struct lane_piece *pieces, size_t count, struct wanted_arrays *ret_rows,
                     size_t *ret_rest_bytes)
{
    struct lane_job *job = job_find(lane, job_id);
    if (workers > LANE_WORKERS_MAX)
        return -EINVAL;
    size_t bytes = job ? 0 : job_bytes(workers);
    *ret_rest_bytes = bytes;
    for (size_t i = 0; i < count; i++) {
        ret_rows[i] = (struct wanted_arrays){0};
        if (!job || !piece_find(job, pieces[i].id))
            add_piece(&pieces[i], workers, &ret_rows[i], ret_rest_bytes);
        if (__builtin_add_overflow(bytes, ret_rows[i].state_bytes, &bytes) ||
            __builtin_add_overflow(bytes, ret_rows[i].kept_bytes, &bytes))
            return -ENOSPC;
    }
    return check_room(lane, job, bytes);
}

size_t wanted_by_jobs(const struct lane *lane, size_t *ret_bytes, size_t room)
{
    size_t count = 0;
    list_for_each_entry (const struct lane_job, job, &lane->jobs, link) {
        if (job->pages != WINDOW_WANTED || count + 2 > room)
            continue;
        ret_bytes[count++] = window_bytes(job);
        ret_bytes[count++] = inbox_bytes(job);
    }
    return count;
}

void wanted_is_ready(struct lane *lane, const char *why_not)
{
    list_for_each_entry (struct lane_job, job, &lane->jobs, link) {
        if (job->pages != WINDOW_WANTED)
            continue;
        job->pages = WINDOW_READY;
        if (why_not)
            job_fail(job, -ENOSPC, "lane %u: slots need %s", lane->options.id, why_not);
        job_wake(job);
    }
}
