/* Requests for measurements of lanes, and the stored replies. A lane's busy time includes waits for
 * a core. Only this file subtracts these waits, so views, samples and bills agree (K15). Owns the
 * stored measurements of each aggregator. Each request has digests of the stored rows, so that
 * lanes send only changed rows (K61). */
#include "svc/coordinator/aggregator/busy_time.h"

#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/measure/measure.h"

#include "svc/base/cleanup.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>

/* Finds the row of a lane. The row with index `place` is compared first, because a lane's row
 * usually has the same index in each reply. */
static WIRE(LaneUse) * use_in(const envelope *stats, uint32_t lane, size_t place)
{
    const WIRE(StatsReply) *reply = stats ? stats->stats_reply : NULL;
    if (reply && place < reply->n_lanes && reply->lanes[place]->lane == lane)
        return reply->lanes[place];
    for (size_t i = 0; reply && i < reply->n_lanes; i++)
        if (reply->lanes[i]->lane == lane)
            return reply->lanes[i];
    return NULL;
}

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

/* Returns the increase of a counter. A counter that is lower than before has restarted from 0. */
static uint64_t since(uint64_t was, uint64_t is) { return is >= was ? is - was : is; }

/* Returns the corrected value of a counter: the earlier corrected value, plus the increase
 * multiplied by `part`. `part` is the share of the time for which the lane had its core. */
static uint64_t shown(uint64_t before, uint64_t was, uint64_t is, double part)
{
    return (is >= was ? before : 0) + (uint64_t)((double)since(was, is) * part);
}

/* Returns the share of the busy time for which the lane had its core. The busy time also grows
 * while another process uses the core; the thread's CPU time does not. */
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

/* Corrects the counters of a lane in `use`. `was`: the counters of the earlier reply as received;
 * `before`: the same counters after their correction. */
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
    gradpool__wire__envelope__free_unpacked(a->stats, NULL);
    gradpool__wire__envelope__free_unpacked(a->counted, NULL);
    a->stats = a->counted = NULL;
}

/* Returns whether this coordinator has stored each row that the reply omits. If two requests were
 * open at the same time, a newer row may have replaced the stored row; the reply is then
 * dropped. */
static bool has_known(const struct aggregator *a, const WIRE(StatsReply) * reply)
{
    for (size_t i = 0; i < reply->n_lanes; i++) {
        const WIRE(LaneUse) *use = reply->lanes[i], *was = use_in(a->counted, use->lane, i);
        bool is_here = was && was->digest != 0 && was->digest == use->digest;
        if (use->is_known && (!is_here || use->n_jobs > 0))
            return false;
    }
    return true;
}

static void take_rows(WIRE(LaneUse) * was, WIRE(LaneUse) * use)
{
    use->jobs = was->jobs;
    use->n_jobs = was->n_jobs;
    was->jobs = NULL;
    was->n_jobs = 0;
}

static void note_news(struct aggregator *a, uint32_t lane)
{
    for (size_t i = 0; i < a->lanes_count; i++)
        if (a->lanes[i].id == lane)
            a->lanes[i].rows_ns = a->measured_ns;
}

/* Copies the rows that the new reply omits, with their corrected values, from the stored reply. */
static void take_lane(struct aggregator *a, size_t place, WIRE(LaneUse) * counted,
                      WIRE(LaneUse) * use)
{
    WIRE(LaneUse) *before = use_in(a->stats, use->lane, place);
    WIRE(LaneUse) *was = use_in(a->counted, use->lane, place);
    show_lane(before, was, use);
    if (use->is_known) {
        take_rows(before, use);
        take_rows(was, counted);
    } else {
        note_news(a, use->lane);
    }
    use->is_known = false;
    use->digest = 0;
}

bool stats_keep(struct aggregator *a, const envelope *reply)
{
    /* The caller owns the reply. The reply is packed once and unpacked twice to get two copies. */
    size_t bytes = gradpool__wire__envelope__get_packed_size(reply);
    _cleanup_free_ uint8_t *packed = has_known(a, reply->stats_reply) ? malloc(bytes) : NULL;
    if (!packed)
        return false;
    gradpool__wire__envelope__pack(reply, packed);
    envelope *counted = gradpool__wire__envelope__unpack(NULL, bytes, packed);
    envelope *stats = gradpool__wire__envelope__unpack(NULL, bytes, packed);
    if (!counted || !stats) {
        gradpool__wire__envelope__free_unpacked(counted, NULL);
        gradpool__wire__envelope__free_unpacked(stats, NULL);
        return false;
    }
    a->measured_ns = clock_now_ns();
    for (size_t i = 0; i < stats->stats_reply->n_lanes; i++)
        take_lane(a, i, counted->stats_reply->lanes[i], stats->stats_reply->lanes[i]);
    stats_forget(a);
    a->stats = stats;
    a->counted = counted;
    return true;
}

int stats_request(struct aggregator *a, uint32_t job_id, uint64_t deadline_ns, call_done_fn done,
                  const void *data, size_t data_bytes)
{
    _cleanup_free_ uint64_t *known = calloc(a->lanes_count + 1, sizeof *known);
    if (!known)
        return -ENOMEM;
    for (size_t i = 0; i < a->lanes_count; i++) {
        const WIRE(LaneUse) *use = use_in(a->counted, a->lanes[i].id, i);
        known[i] = use ? use->digest : 0;
    }
    return call_send(a,
                     &MESSAGE(0, STATS_REQUEST, stats_request, .job_id = job_id, .known = known,
                              .n_known = a->lanes_count),
                     deadline_ns, done, data, data_bytes);
}

const WIRE(LaneUse) * stats_of_lane(const struct lane *lane)
{
    return use_in(lane->aggregator->stats, lane->id, lane->index);
}

const WIRE(JobUse) * stats_of_job(const struct lane *lane, uint32_t job_id)
{
    return job_in(stats_of_lane(lane), job_id, SIZE_MAX);
}
