/* Builds views from the coordinator's replies. Owns the replies, the arrays of views, and their
 * order. Every value is from a reply. */
#include "svc/ops/snapshot/snapshot.h"
#include "svc/ops/snapshot/counts.h"
#include "svc/ops/snapshot/pools.h"
#include "svc/ops/snapshot/row_tables.h"
#include "svc/ops/snapshot/stage.h"
#include "svc/wire/durability.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIRE(type) Gradpool__Wire__##type
#define BODY(name) GRADPOOL__WIRE__ENVELOPE__BODY_##name

static const struct view_rate unknown_rate = {NAN, NAN, NAN, NAN, NAN};

static void add_use(const WIRE(JobUse) * use, struct view_use *ret_use)
{
    ret_use->heap_bytes += use->heap_bytes;
    ret_use->registered_bytes += use->registered_bytes;
    ret_use->busy_ns += use->busy_ns;
    ret_use->pushed_bytes += use->pushed_bytes;
    ret_use->rounds += use->rounds;
    ret_use->connections += use->connections;
    ret_use->queue_ns += use->queue_ns;
    ret_use->handled_ns += use->handled_ns;
    ret_use->stalled_ns += use->stalled_ns;
    ret_use->states += use->states;
    ret_use->copied += use->copied;
    ret_use->empty += use->empty;
}

static int compare_numbers(uint32_t left, uint32_t right)
{
    return left < right ? -1 : left > right;
}

/* --- status --- */

static int compare_parts(const void *a, const void *b)
{
    return compare_numbers(((const struct view_part *)a)->job_id,
                           ((const struct view_part *)b)->job_id);
}

static int compare_lanes(const void *a, const void *b)
{
    return compare_numbers((*(struct view_lane *const *)a)->lane,
                           (*(struct view_lane *const *)b)->lane);
}

/* Fills `parts`, which has enough room, and sums the use of the lane. */
static void take_parts(const WIRE(LaneUse) * use, struct view_part *parts, struct view_lane *lane)
{
    lane->parts = parts;
    for (size_t i = 0; i < use->n_jobs; i++) {
        parts[i] =
            (struct view_part){.job_id = use->jobs[i]->job_id, .rate = unknown_rate, .share = NAN};
        add_use(use->jobs[i], &parts[i].use);
        add_use(use->jobs[i], &lane->use);
    }
    lane->parts_count = use->n_jobs;
    qsort(parts, lane->parts_count, sizeof *parts, compare_parts);
}

static void take_lane(const WIRE(LaneView) * lane, struct view_part *parts,
                      struct view_lane *ret_lane)
{
    *ret_lane = (struct view_lane){.lane = lane->lane,
                                   .core = lane->core,
                                   .pu = lane->pu,
                                   .numa = lane->numa,
                                   .tasks = lane->tasks,
                                   .jobs = lane->jobs,
                                   .state = lane->state,
                                   .shm = lane->shm,
                                   .ofi = lane->ofi,
                                   .memory_bytes_max = lane->memory_bytes_max,
                                   .rate = unknown_rate};
    if (!lane->use)
        return;
    ret_lane->is_measured = true;
    take_parts(lane->use, parts, ret_lane);
    ret_lane->cpu_ns = lane->use->cpu_ns;
    ret_lane->arena_bytes = lane->use->arena_bytes;
    /* The use of the lane is its own counter, not the sum over its jobs, because the counter
     * includes ended jobs. */
    ret_lane->use.busy_ns = lane->use->busy_ns;
    ret_lane->use.rounds = lane->use->rounds;
    ret_lane->use.pushed_bytes = lane->use->pushed_bytes;
}

static void count(const WIRE(StatusReply) * reply, size_t *ret_lanes, size_t *ret_parts)
{
    *ret_lanes = *ret_parts = 0;
    for (size_t i = 0; i < reply->n_aggregators; i++) {
        const WIRE(AggregatorView) *a = reply->aggregators[i];
        *ret_lanes += a->n_lanes;
        for (size_t j = 0; j < a->n_lanes; j++)
            *ret_parts += a->lanes[j]->use ? a->lanes[j]->use->n_jobs : 0;
    }
}

static void take_aggregator(struct snapshot *s, const WIRE(AggregatorView) * a,
                            struct view_lane *lanes, struct view_part **parts,
                            struct view_aggregator *ret_view)
{
    *ret_view = (struct view_aggregator){.aggregator = a->aggregator,
                                         .pid = a->pid,
                                         .node = a->node,
                                         .state = a->state,
                                         .cpu_ns = a->cpu_ns,
                                         .silent_ns = a->silent_ns,
                                         .measured_ns = a->measured_ns,
                                         .lanes = lanes,
                                         .lanes_count = a->n_lanes};
    bool is_lost = strcmp(a->state, "lost") == 0;
    for (size_t i = 0; i < a->n_lanes; i++) {
        take_lane(a->lanes[i], *parts, &lanes[i]);
        *parts += lanes[i].parts_count;
        if (!is_lost)
            s->lanes[s->lanes_count++] = &lanes[i];
    }
}

static int take_events(struct snapshot *s, const WIRE(StatusReply) * reply)
{
    s->status.events = calloc(reply->n_events + 1, sizeof *s->status.events);
    if (!s->status.events)
        return -ENOMEM;
    s->status.events_count = reply->n_events;
    for (size_t i = 0; i < reply->n_events; i++)
        s->status.events[i] = (struct view_event){.at_s = (double)reply->events[i]->at_ns / 1e9,
                                                  .kind = reply->events[i]->kind,
                                                  .text = reply->events[i]->text};
    return 0;
}

static int take_settings(struct snapshot *s, const WIRE(StatusReply) * reply)
{
    s->status.settings = calloc(reply->n_settings + 1, sizeof *s->status.settings);
    if (!s->status.settings)
        return -ENOMEM;
    s->status.settings_count = reply->n_settings;
    for (size_t i = 0; i < reply->n_settings; i++)
        s->status.settings[i] =
            (struct view_fact){reply->settings[i]->name, reply->settings[i]->value};
    return 0;
}

static int take_payers(struct snapshot *s, const WIRE(StatusReply) * reply)
{
    s->status.payers = calloc(reply->n_tenants + 1, sizeof *s->status.payers);
    if (!s->status.payers)
        return -ENOMEM;
    s->status.payers_count = reply->n_tenants;
    for (size_t i = 0; i < reply->n_tenants; i++)
        s->status.payers[i] = (struct view_payer){.tenant = reply->tenants[i]->tenant,
                                                  .cpu_ns = reply->tenants[i]->cpu_ns};
    return 0;
}

static int take_status(struct snapshot *s, const WIRE(StatusReply) * reply)
{
    size_t lanes_count, parts_count;
    count(reply, &lanes_count, &parts_count);
    s->lanes = calloc(lanes_count + 1, sizeof(struct view_lane *));
    s->parts = calloc(parts_count + 1, sizeof *s->parts);
    struct view_aggregator *aggregators = calloc(reply->n_aggregators + 1, sizeof *aggregators);
    s->status = (struct view_status){.endpoint = reply->endpoint,
                                     .state_dir = reply->state_dir,
                                     .policy = reply->policy,
                                     .pid = reply->pid,
                                     .jobs = reply->jobs,
                                     .tasks = reply->tasks,
                                     .uptime_ns = reply->uptime_ns,
                                     .cpu_ns = reply->cpu_ns,
                                     .incarnation = reply->incarnation,
                                     .own_only = reply->own_only,
                                     .aggregators = aggregators,
                                     .aggregators_count = reply->n_aggregators};
    struct view_lane *lanes = calloc(lanes_count + 1, sizeof *lanes);
    if (aggregators)
        /* assigned before the check, so that snapshot_destroy() frees the lanes */
        aggregators[0].lanes = lanes;
    if (!s->lanes || !s->parts || !aggregators || !lanes) {
        free(aggregators ? NULL : lanes);
        return -ENOMEM;
    }
    struct view_part *parts = s->parts;
    for (size_t i = 0; i < reply->n_aggregators; i++) {
        take_aggregator(s, reply->aggregators[i], lanes, &parts, &aggregators[i]);
        lanes += reply->aggregators[i]->n_lanes;
    }
    qsort(s->lanes, s->lanes_count, sizeof *s->lanes, compare_lanes);
    int error = take_events(s, reply) ?: take_payers(s, reply);
    return error < 0 ? error : take_settings(s, reply);
}

/* --- jobs --- */

static void take_use(const WIRE(JobUse) * use, struct view_job *ret_view)
{
    add_use(use, &ret_view->use);
    ret_view->measured = (struct view_measured){.round = use->squares_round,
                                                .inputs = use->squares_inputs,
                                                .losses = use->losses,
                                                .input_squares = use->input_squares,
                                                .result_squares = use->result_squares,
                                                .loss_sum = use->loss_sum};
}

static int take_lists(const WIRE(JobView) * job, struct view_job *view)
{
    view->ranks = calloc(job->n_ranks + 1, sizeof *view->ranks);
    view->limits = calloc(job->n_limits + 1, sizeof *view->limits);
    if (!view->ranks || !view->limits)
        return -ENOMEM;
    for (size_t i = 0; i < job->n_limits; i++)
        view->limits[i] = (struct view_limit){.name = job->limits[i]->name,
                                              .used = job->limits[i]->used,
                                              .most = job->limits[i]->most,
                                              .is_own = job->limits[i]->is_own};
    for (size_t i = 0; i < job->n_ranks; i++)
        view->ranks[i] = (struct view_worker){.rank = job->ranks[i]->rank,
                                              .pid = job->ranks[i]->pid,
                                              .node = job->ranks[i]->node,
                                              .state = job->ranks[i]->state};
    int error = row_tables_view(job, &view->tables) ?: stage_view_create(job, &view->stage);
    return error ?: counts_view(job->use ? job->use->counts : NULL, &view->counts);
}

static int take_job(const WIRE(JobView) * job, struct view_job *ret_view)
{
    *ret_view = (struct view_job){.tenant = job->tenant,
                                  .job = job->job,
                                  .state = job->state,
                                  .failure = job->failure,
                                  .waits_for = job->waits_for,
                                  .job_id = job->job_id,
                                  .workers = job->workers,
                                  .tensors = job->tensors,
                                  .tasks = job->tasks,
                                  .epoch = job->epoch,
                                  .tensor_bytes = job->tensor_bytes,
                                  .period_ns = job->period_ns,
                                  .alone_period_ns = job->alone_period_ns,
                                  .lane_ns = job->lane_ns,
                                  .feedback_ns = job->feedback_ns,
                                  .control_ns = job->control_ns,
                                  .loss_ppm = job->loss_ppm,
                                  .shared_loss_ppm = job->shared_loss_ppm,
                                  .is_predicted = job->is_predicted,
                                  .predicted_loss_ppm = job->predicted_loss_ppm,
                                  .loss_limit_ppm = job->loss_limit_ppm,
                                  .durability = durability_name(job->durability),
                                  .lanes = job->lanes,
                                  .lanes_count = job->n_lanes,
                                  .rate = unknown_rate,
                                  .cores_allocated = NAN};
    if (job->use)
        take_use(job->use, ret_view);
    return take_lists(job, ret_view);
}

static int compare_jobs(const void *a, const void *b)
{
    return compare_numbers(((const struct view_job *)a)->job_id,
                           ((const struct view_job *)b)->job_id);
}

static int take_jobs(struct snapshot *s, const WIRE(JobsReply) * reply)
{
    struct view_jobs *jobs = &s->jobs;
    jobs->jobs = calloc(reply->n_jobs + 1, sizeof *jobs->jobs);
    int error = jobs->jobs ? 0 : -ENOMEM;
    while (error == 0 && jobs->jobs_count < reply->n_jobs) {
        error = take_job(reply->jobs[jobs->jobs_count], &jobs->jobs[jobs->jobs_count]);
        /* an incomplete job also counts, so that snapshot_destroy() frees its parts */
        jobs->jobs_count++;
    }
    if (error == 0)
        qsort(jobs->jobs, jobs->jobs_count, sizeof *jobs->jobs, compare_jobs);
    return error ?: pools_view(reply, &jobs->pools);
}

const struct view_job *snapshot_job(const struct snapshot *s, uint32_t job_id)
{
    struct view_job key = {.job_id = job_id};
    if (s->jobs.jobs_count == 0)
        return NULL;
    return bsearch(&key, s->jobs.jobs, s->jobs.jobs_count, sizeof key, compare_jobs);
}

/* --- both --- */

static void free_views(struct snapshot *s)
{
    for (size_t i = 0; i < s->jobs.jobs_count; i++) {
        free(s->jobs.jobs[i].ranks);
        free(s->jobs.jobs[i].limits);
        free(s->jobs.jobs[i].counts);
        free(s->jobs.jobs[i].tables);
        free(s->jobs.jobs[i].stage);
    }
    free(s->jobs.jobs);
    free(s->jobs.pools);
    if (s->status.aggregators)
        free(s->status.aggregators[0].lanes);
    free(s->status.aggregators);
    free(s->status.events);
    free(s->status.settings);
    free(s->status.payers);
    free(s->lanes);
    free(s->parts);
    free(s);
}

int snapshot_create(envelope *status_reply, envelope *jobs_reply, struct snapshot **ret_snapshot)
{
    if ((status_reply && status_reply->body_case != BODY(STATUS_REPLY)) ||
        (jobs_reply && jobs_reply->body_case != BODY(JOBS_REPLY)))
        return -EBADMSG;
    struct snapshot *s = calloc(1, sizeof *s);
    int error = s ? 0 : -ENOMEM;
    if (error == 0 && status_reply)
        error = take_status(s, status_reply->status_reply);
    if (error == 0 && jobs_reply)
        error = take_jobs(s, jobs_reply->jobs_reply);
    if (error < 0) {
        if (s)
            free_views(s);
        return error;
    }
    s->status_reply = status_reply;
    s->jobs_reply = jobs_reply;
    *ret_snapshot = s;
    return 0;
}

void snapshot_destroy(struct snapshot *s)
{
    if (!s)
        return;
    gradpool__wire__envelope__free_unpacked(s->status_reply, NULL);
    gradpool__wire__envelope__free_unpacked(s->jobs_reply, NULL);
    free_views(s);
}
