/* Rates, shares and cores between two snapshots. An unknown value is NAN, never 0 (O4). */
#include "svc/ops/snapshot/figures.h"
#include "svc/ops/snapshot/snapshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- objects of the previous snapshot --- */

static int compare_lane(const void *key, const void *element)
{
    uint32_t lane = *(const uint32_t *)key, other = (*(struct view_lane *const *)element)->lane;
    return lane < other ? -1 : lane > other;
}

static const struct view_lane *lane_in(const struct snapshot *s, uint32_t lane)
{
    struct view_lane *const *found =
        bsearch(&lane, s->lanes, s->lanes_count, sizeof *s->lanes, compare_lane);
    return found ? *found : NULL;
}

static int compare_part(const void *key, const void *element)
{
    uint32_t job = *(const uint32_t *)key, other = ((const struct view_part *)element)->job_id;
    return job < other ? -1 : job > other;
}

static const struct view_part *part_in(const struct view_lane *lane, uint32_t job_id)
{
    if (lane->parts_count == 0)
        return NULL;
    return bsearch(&job_id, lane->parts, lane->parts_count, sizeof *lane->parts, compare_part);
}

/* --- rates --- */

/* Returns the rate of a counter. A counter that is lower than before has restarted from 0. */
static double per_s(uint64_t before, uint64_t after, double seconds)
{
    return (double)(after >= before ? after - before : after) / seconds;
}

static struct view_rate rate(const struct view_use *before, const struct view_use *after,
                             double seconds)
{
    return (struct view_rate){
        .cores = per_s(before->busy_ns, after->busy_ns, seconds) / 1e9,
        .rounds_per_s = per_s(before->rounds, after->rounds, seconds),
        .bytes_per_s = per_s(before->pushed_bytes, after->pushed_bytes, seconds),
        .handled = per_s(before->handled_ns, after->handled_ns, seconds) / 1e9,
        .queued = per_s(before->queue_ns, after->queue_ns, seconds) / 1e9};
}

/* Computes the jobs' shares of the lane's busy time. On an idle lane all shares are equal. */
static void share_out(struct view_lane *lane)
{
    double used = 0;
    for (size_t i = 0; i < lane->parts_count; i++)
        used += lane->parts[i].rate.cores;
    for (size_t i = 0; i < lane->parts_count; i++)
        lane->parts[i].share =
            used > 0 ? lane->parts[i].rate.cores / used : 1.0 / (double)lane->parts_count;
}

static void compare_lane_views(const struct view_lane *before, struct view_lane *lane,
                               double seconds)
{
    static const struct view_use nothing;
    lane->rate = rate(&before->use, &lane->use, seconds);
    lane->rate.cores = per_s(before->cpu_ns, lane->cpu_ns, seconds) / 1e9;
    for (size_t i = 0; i < lane->parts_count; i++) {
        const struct view_part *part = part_in(before, lane->parts[i].job_id);
        lane->parts[i].rate = rate(part ? &part->use : &nothing, &lane->parts[i].use, seconds);
    }
    share_out(lane);
}

static const struct view_aggregator *aggregator_in(const struct snapshot *s, uint32_t id)
{
    for (size_t i = 0; i < s->status.aggregators_count; i++)
        if (s->status.aggregators[i].aggregator == id)
            return &s->status.aggregators[i];
    return NULL;
}

/* Copies the previous rates, because no new counters have arrived. */
static void carry_over(const struct view_lane *before, struct view_lane *lane)
{
    lane->rate = before->rate;
    for (size_t i = 0; i < lane->parts_count; i++) {
        const struct view_part *part = part_in(before, lane->parts[i].job_id);
        if (part) {
            lane->parts[i].rate = part->rate;
            lane->parts[i].share = part->share;
        }
    }
}

/* The rates of an aggregator that does not answer are unknown. */
static void compare_aggregator(const struct snapshot *before, struct view_aggregator *a)
{
    const struct view_aggregator *old = aggregator_in(before, a->aggregator);
    if (!old || old->measured_ns == 0 || strcmp(a->state, "up") != 0)
        return;
    double seconds = (double)(a->measured_ns - old->measured_ns) / 1e9;
    for (size_t i = 0; i < a->lanes_count; i++) {
        const struct view_lane *lane = lane_in(before, a->lanes[i].lane);
        if (lane && a->measured_ns > old->measured_ns)
            compare_lane_views(lane, &a->lanes[i], seconds);
        else if (lane)
            carry_over(lane, &a->lanes[i]);
    }
}

/* --- sums over rates --- */

/* Adds a part to a sum. An unknown part (NAN) is ignored; the sum is unknown only if all parts
 * are. */
static void add(double *total, double part)
{
    if (!isnan(part))
        *total = isnan(*total) ? part : *total + part;
}

static void add_part(struct view_job *job, const struct view_part *part)
{
    add(&job->rate.cores, part->rate.cores);
    add(&job->rate.rounds_per_s, part->rate.rounds_per_s);
    add(&job->rate.bytes_per_s, part->rate.bytes_per_s);
    add(&job->cores_allocated, part->share);
}

/* Adds the cores of a job to the sums. `own_only`: the reader is a tenant and may see only its own
 * jobs, so the allocated and used cores are sums over these jobs. */
static void add_job(struct view_cores *cores, const struct view_job *job, bool own_only)
{
    if (strcmp(job->state, "failed") == 0)
        return;
    cores->dedicated += job_dedicated(job);
    if (own_only && !isnan(job->cores_allocated))
        cores->allocated += job->cores_allocated;
    if (own_only)
        add(&cores->used, job->rate.cores);
}

static void add_up(struct snapshot *s)
{
    bool own_only = s->status.own_only;
    s->cores = (struct view_cores){.used = NAN};
    for (size_t i = 0; i < s->lanes_count; i++) {
        const struct view_lane *lane = s->lanes[i];
        s->cores.allocated += !own_only && lane_is_allocated(lane);
        if (!own_only)
            add(&s->cores.used, lane->rate.cores);
        for (size_t j = 0; j < lane->parts_count; j++) {
            struct view_job *job = (struct view_job *)snapshot_job(s, lane->parts[j].job_id);
            if (job)
                add_part(job, &lane->parts[j]);
        }
    }
    for (size_t i = 0; i < s->jobs.jobs_count; i++)
        add_job(&s->cores, &s->jobs.jobs[i], own_only);
}

void snapshot_compare(const struct snapshot *before, struct snapshot *s)
{
    bool is_same = before && before->status.incarnation == s->status.incarnation &&
                   before->status.pid == s->status.pid;
    for (size_t i = 0; is_same && i < s->status.aggregators_count; i++)
        compare_aggregator(before, &s->status.aggregators[i]);
    add_up(s);
}
