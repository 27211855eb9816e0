/* What lanes have counted, taken in: the one place where busy time becomes the time for which a
 * lane had its core, so that what people see of jobs, what is measured and what lanes took are on
 * one basis (K15). Owns the kept figures of each aggregator. */
#include "svc/coordinator/measuring.h"

#include "svc/base/cleanup.h"
#include "svc/coordinator/service.h"

#include <stdlib.h>

static WIRE(LaneUse) * use_in(const envelope *stats, uint32_t lane)
{
    for (size_t i = 0; stats && i < stats->stats_reply->n_lanes; i++)
        if (stats->stats_reply->lanes[i]->lane == lane)
            return stats->stats_reply->lanes[i];
    return NULL;
}

/* Rows keep their places while no job comes or goes: looked for there first. */
static WIRE(JobUse) * job_in(const WIRE(LaneUse) * lane, uint32_t job_id, size_t place)
{
    if (!lane)
        return NULL;
    if (place < lane->n_jobs && lane->jobs[place]->job_id == job_id)
        return lane->jobs[place];
    for (size_t i = 0; i < lane->n_jobs; i++)
        if (lane->jobs[i]->job_id == job_id)
            return lane->jobs[i];
    return NULL;
}

/* A counter that went back began anew. */
static uint64_t since(uint64_t was, uint64_t is) { return is >= was ? is - was : is; }

/* What a counter shows now, of which the lane had its core for that part. */
static uint64_t shown(uint64_t before, uint64_t was, uint64_t is, double part)
{
    return (is >= was ? before : 0) + (uint64_t)((double)since(was, is) * part);
}

/* Lanes count by a clock that goes on while another process has their core; the thread's own clock,
 * read once a look, says how much of that was theirs. */
static double part_with_core(const WIRE(LaneUse) * was, const WIRE(LaneUse) * is)
{
    uint64_t busy_ns = since(was->busy_ns, is->busy_ns), cpu_ns = since(was->cpu_ns, is->cpu_ns);
    return busy_ns > cpu_ns ? (double)cpu_ns / (double)busy_ns : 1;
}

static void show_job(const WIRE(JobUse) * before, const WIRE(JobUse) * was, double part,
                     WIRE(JobUse) * use)
{
    static const WIRE(JobUse) nothing;
    before = before ? before : &nothing;
    was = was ? was : &nothing;
    uint64_t counted_ns = use->busy_ns;
    use->burst_ns = shown(before->burst_ns, was->burst_ns, use->burst_ns, part);
    use->busy_ns = shown(before->busy_ns, was->busy_ns, use->busy_ns, part);
    double of_all = counted_ns ? (double)use->busy_ns / (double)counted_ns : 1;
    for (size_t i = 0; i < use->n_pieces_busy_ns; i++)
        use->pieces_busy_ns[i] = (uint64_t)((double)use->pieces_busy_ns[i] * of_all);
}

/* `before`: what was shown of it when `was` had been counted. */
static void show_lane(const WIRE(LaneUse) * before, const WIRE(LaneUse) * was, WIRE(LaneUse) * use)
{
    static const WIRE(LaneUse) nothing;
    before = before ? before : &nothing;
    was = was ? was : &nothing;
    double part = part_with_core(was, use);
    for (size_t i = 0; i < use->n_jobs; i++) {
        uint32_t job_id = use->jobs[i]->job_id;
        show_job(job_in(before, job_id, i), job_in(was, job_id, i), part, use->jobs[i]);
    }
    use->busy_ns = shown(before->busy_ns, was->busy_ns, use->busy_ns, part);
}

void stats_forget(struct aggregator *a)
{
    if (a->stats)
        gradpool__wire__envelope__free_unpacked(a->stats, NULL);
    if (a->counted)
        gradpool__wire__envelope__free_unpacked(a->counted, NULL);
    a->stats = a->counted = NULL;
}

void stats_keep(struct aggregator *a, const envelope *reply)
{
    /* The reply is the receiver's: copies are kept through its packed form. */
    size_t bytes = gradpool__wire__envelope__get_packed_size(reply);
    _cleanup_free_ uint8_t *packed = malloc(bytes);
    if (!packed)
        return;
    gradpool__wire__envelope__pack(reply, packed);
    envelope *counted = gradpool__wire__envelope__unpack(NULL, bytes, packed);
    envelope *stats = gradpool__wire__envelope__unpack(NULL, bytes, packed);
    if (!counted || !stats) {
        if (counted)
            gradpool__wire__envelope__free_unpacked(counted, NULL);
        if (stats)
            gradpool__wire__envelope__free_unpacked(stats, NULL);
        return;
    }
    for (size_t i = 0; i < stats->stats_reply->n_lanes; i++) {
        WIRE(LaneUse) *use = stats->stats_reply->lanes[i];
        show_lane(use_in(a->stats, use->lane), use_in(a->counted, use->lane), use);
    }
    stats_forget(a);
    a->stats = stats;
    a->counted = counted;
    a->measured_ns = clock_now_ns();
}

const WIRE(LaneUse) * stats_of_lane(const struct lane *lane)
{
    return use_in(lane->aggregator->stats, lane->id);
}

const WIRE(JobUse) * stats_of_job(const struct lane *lane, uint32_t job_id)
{
    return job_in(stats_of_lane(lane), job_id, SIZE_MAX);
}
