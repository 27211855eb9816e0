/* Lanes in the reply to `gradpool status`. An operator sees all jobs of a lane, a tenant only its
 * own (K98). Owns nothing. */
#include "svc/coordinator/view/lanes.h"

#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/measure/measure.h"

static void add_use(WIRE(LaneUse) * shown, const WIRE(JobUse) * use)
{
    shown->busy_ns += use->busy_ns;
    shown->rounds += use->rounds;
    shown->pushed_bytes += use->pushed_bytes;
    shown->arena_bytes += use->heap_bytes;
    shown->cpu_ns = shown->busy_ns;
}

/* Computes the use of a lane by one tenant's jobs. The jobs of other tenants are summed in one row
 * without a number, so a tenant learns only its own part of the lane's time. */
static WIRE(LaneUse) * own_use(struct pool *pool, const struct lane *lane,
                               const WIRE(LaneUse) * use, const struct tenant *only)
{
    WIRE(LaneUse) *shown = pool_take(pool, sizeof *shown);
    WIRE(JobUse) **rows = pool_take(pool, (use->n_jobs + 1) * sizeof *rows);
    WIRE(JobUse) *others = pool_take(pool, sizeof *others);
    if (!shown || !rows || !others)
        return NULL;
    *shown = MESSAGE_PART(LaneUse, lane_use, .lane = use->lane, .jobs = rows);
    *others = MESSAGE_PART(JobUse, job_use);
    for (size_t i = 0; i < use->n_jobs; i++) {
        const struct job *job = jobs_find_id(lane->aggregator->service, use->jobs[i]->job_id);
        if (job && job->tenant == only) {
            rows[shown->n_jobs++] = use->jobs[i];
            add_use(shown, use->jobs[i]);
        } else {
            others->busy_ns += use->jobs[i]->busy_ns;
        }
    }
    if (others->busy_ns > 0)
        rows[shown->n_jobs++] = others;
    return shown;
}

WIRE(LaneView) * view_lane(struct pool *pool, const struct lane *lane, const struct tenant *only)
{
    WIRE(LaneView) *view = pool_take(pool, sizeof *view);
    if (!view)
        return NULL;
    WIRE(LaneUse) *use = (WIRE(LaneUse) *)stats_of_lane(lane);
    *view = MESSAGE_PART(LaneView, lane_view, .lane = lane->id, .aggregator = lane->aggregator->id,
                         .core = lane->core, .pu = lane->pu, .numa = lane->numa,
                         .use = use && only ? own_use(pool, lane, use, only) : use,
                         .state = (char *)lane_use_name(lane->use));
    if (only)
        return view;
    view->shm = lane->shm;
    view->ofi = lane->ofi;
    view->memory_bytes_max = lane->aggregator->service->options->limits.most[LIMIT_LANE_MEMORY];
    return view;
}

bool view_lane_is_shown(const struct lane *lane, const struct tenant *only)
{
    if (!only)
        return true;
    list_for_each_entry (const struct job, job, &lane->aggregator->service->jobs, link)
        if (job->tenant == only && share_in_use(job, lane))
            return true;
    return false;
}
