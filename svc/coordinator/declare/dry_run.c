/* `gradpool plan` shows where the service would place a job now, with the predicted losses, or why
 * the service would refuse the job. A dry run creates a job, handles the job like a declare, and
 * frees the job (K34). While limits are checked, the job is in the list of jobs. Other jobs, lanes,
 * numbers and the store do not change. */
#include "svc/coordinator/declare/dry_run.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/placement/apply_plan.h"
#include "svc/coordinator/placement/ask_packer.h"
#include "svc/coordinator/placement/history.h"
#include "svc/coordinator/placement/neighbour.h"
#include "svc/coordinator/placement/reason.h"
#include "svc/coordinator/service.h"
#include "svc/reduce/reduce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PPM 1e6

/* --- the job of the dry run --- */

static struct job *create(struct peer *p, const WIRE(PlanRequest) * request)
{
    struct service *s = p->service;
    struct job *job =
        jobs_create(s, p->tenant, s->numbers->next_job, request->job, request->workers);
    if (!job)
        return NULL;
    job->terms->is_trial = true;
    job->terms->is_operators = p->is_operator;
    job->terms->loss_limit_ppm = request->loss_limit_ppm;
    return job;
}

/* Frees the job of the dry run, whose pieces were never attached to lanes. */
static void destroy(struct job *job)
{
    for (size_t i = 0; i < job->tensors_count; i++)
        job->tensors[i]->pieces_count = 0;
    jobs_destroy(job);
}

static int check_request(const WIRE(PlanRequest) * request, struct err *err)
{
    if (request->workers < 1 || request->workers > WORKERS_MAX)
        return err_set(err, -EINVAL, "--workers %u: expected 1 to %d", request->workers,
                       WORKERS_MAX);
    if (strlen(request->job) > JOB_NAME_BYTES_MAX || !text_is_plain(request->job))
        return err_set(err, -EINVAL,
                       "a job's name has 1 to %d bytes of UTF-8, without quotes and control "
                       "characters; correct the name",
                       JOB_NAME_BYTES_MAX);
    if (request->n_tensors == 0)
        return err_set(
            err, -EINVAL,
            "the file has no tensors: there is nothing to place; add a line for each tensor");
    if (request->loss_limit_ppm >= PPM || request->period_ns > PACKER_PERIOD_NS_MAX ||
        request->lane_ns > request->period_ns * (uint64_t)WORKERS_MAX)
        return err_set(
            err, -EINVAL,
            "a period of %.3f s, lane time of %.3f s, limit %.1f %%: "
            "no job can have these values; correct --period, --lane-time or --loss-limit",
            (double)request->period_ns / NS_PER_S, (double)request->lane_ns / NS_PER_S,
            request->loss_limit_ppm / 1e4);
    return 0;
}

static int check_tensor(const struct job *job, const WIRE(TensorSpec) * spec, struct err *err)
{
    size_t element_bytes = reduce_element_bytes(spec->dtype), bytes = strlen(spec->name);
    if (bytes < 1 || bytes > TENSOR_NAME_BYTES_MAX || !text_is_utf8(spec->name))
        return err_set(err, -EINVAL, "a tensor's name has 1 to %d bytes of UTF-8; correct '%.32s'",
                       TENSOR_NAME_BYTES_MAX, spec->name);
    if (element_bytes == 0 || spec->elements > TENSOR_BYTES_MAX / element_bytes)
        return err_set(err, -EINVAL,
                       "tensor '%.100s' has an unknown dtype or over 1 TiB; correct its line",
                       spec->name);
    if (jobs_tensor_named(job, spec->name))
        return err_set(err, -EINVAL, "two tensors have the name '%.100s'; rename one", spec->name);
    return 0;
}

static int add_tensors(struct job *job, const WIRE(PlanRequest) * request, struct err *err)
{
    const struct terms plain = {0};
    for (size_t i = 0; i < request->n_tensors; i++) {
        const WIRE(TensorSpec) *spec = request->tensors[i];
        if (check_tensor(job, spec, err) < 0)
            return -EINVAL;
        struct tensor *tensor =
            tensor_create(job, job->next_tensor++, spec->name, spec->dtype, spec->elements, &plain);
        int error = tensor ? jobs_add_tensor(job, tensor) : -ENOMEM;
        if (error < 0 && tensor)
            tensor_destroy(tensor);
        if (error < 0)
            return err_set(
                err, error,
                "gradpool serve has no memory for the tensors of a plan; raise its memory limit");
    }
    return 0;
}

/* Returns the mean lane time per byte of tensors over all measured jobs; 0: no job is measured. */
static double lane_ns_a_byte(const struct service *s)
{
    double lanes_ns = 0, bytes = 0;
    list_for_each_entry (const struct job, job, &s->jobs, link) {
        if (profile_known(job->profile).period_ns == 0)
            continue;
        lanes_ns += (double)job_tensors_ns(job);
        bytes += (double)job->index->bytes * job->workers;
    }
    return bytes > 0 ? lanes_ns / bytes : 0;
}

/* Sets the times of the job from the request, or from an earlier run. If neither has a lane time,
 * the mean lane time per byte of the measured jobs is used. */
static void set_times(struct job *job, const WIRE(PlanRequest) * request)
{
    job->terms->layout = profiles_layout(job->tensors, job->tensors_count);
    profiles_recall(job, job->tensors, job->tensors_count);
    if (request->period_ns == 0)
        return;
    double bytes = (double)job->index->bytes * job->workers;
    uint64_t lanes_ns =
        request->lane_ns ? request->lane_ns : (uint64_t)(bytes * lane_ns_a_byte(job->service));
    struct profile_times times = {.period_ns = request->period_ns,
                                  .busiest_ns = lanes_ns / job_own_lanes(job),
                                  .lanes_ns = lanes_ns};
    for (size_t i = 0; i < job->tensors_count && lanes_ns > 0; i++)
        job->tensors[i]->lane_ns = 0;
    if (lanes_ns > 0)
        profile_recall(job->profile, &times, true, (uint32_t)job_own_lanes(job),
                       &(struct narrow){0});
}

/* Checks the limits. The use of a tenant is a sum over the list of jobs, so the job is added to
 * this list during the check. */
static int check_quota(struct job *job, struct err *err)
{
    list_append(&job->service->jobs, &job->link);
    int error = quota_check_declared(job, job->tensors, job->tensors_count, err);
    list_remove(&job->link);
    return error;
}

static int place(struct job *job, struct answer *ret_answer, struct err *err)
{
    int error = quota_check_new_job(job->service, job->tenant, job->name, job->workers, err)
                    ?: check_quota(job, err);
    if (error < 0)
        return error;
    error = placing_try(job, ret_answer, err);
    if (error < 0)
        return error;
    if (job->index->pieces_count > 0 && (error = check_quota(job, err)) == 0)
        error = quota_check_lanes(job, job->tensors, job->tensors_count, err);
    if (error < 0)
        packer_plan_fini(&ret_answer->plan);
    return error;
}

/* --- predicted losses --- */

/* Finds or creates the job's row in the reply. NULL: no memory. */
static WIRE(PlanCost) * find_cost(WIRE(PlanReply) * reply, const struct job *job)
{
    for (size_t i = 0; i < reply->n_jobs; i++)
        if (reply->jobs[i]->is_new == job->terms->is_trial &&
            strcmp(reply->jobs[i]->job, job->name) == 0 &&
            strcmp(reply->jobs[i]->tenant, job->tenant->key.tenant) == 0)
            return reply->jobs[i];
    WIRE(PlanCost) *cost = malloc(sizeof *cost);
    if (!cost)
        return NULL;
    *cost = MESSAGE_PART(PlanCost, plan_cost, .tenant = strdup(job->tenant->key.tenant),
                         .job = strdup(job->name), .loss_limit_ppm = job_limit_ppm(job),
                         .is_new = job->terms->is_trial);
    reply->jobs[reply->n_jobs++] = cost;
    return cost->tenant && cost->job ? cost : NULL;
}

static void raise_to(uint32_t *ppm, double loss)
{
    uint32_t now_ppm = (uint32_t)(loss * PPM);
    if (now_ppm > *ppm)
        *ppm = now_ppm;
}

/* Returns the job if the caller may see it: an operator sees all jobs, a tenant its own. Otherwise
 * NULL. */
static const struct job *visible(const struct job *trial, uint64_t id)
{
    const struct job *job = id == trial->id ? trial : jobs_find_id(trial->service, (uint32_t)id);
    bool is_visible = job && (trial->terms->is_operators || job->tenant == trial->tenant);
    return is_visible ? job : NULL;
}

/* Adds the predicted losses on one lane to the reply, with and without the new job. `jobs`: all
 * jobs on the lane; the last one is the new job. */
static int add_costs(const struct job *trial, const struct packer_resident *jobs, size_t count,
                     WIRE(PlanLane) * lane, WIRE(PlanReply) * reply)
{
    double none, *before = calloc(2 * count, sizeof *before), *after = before + count;
    const char *policy = trial->service->options->policy;
    if (!before)
        return -ENOMEM;
    if (packer_losses(policy, jobs, 0, &none) < 0)
        policy = "shared";
    packer_predict(policy, jobs, count - 1, before);
    packer_predict(policy, jobs, count, after);
    raise_to(&lane->predicted_loss_ppm, after[count - 1]);
    int error = 0;
    for (size_t i = count; i-- > 0 && error == 0;) {
        const struct job *job = visible(trial, jobs[i].job);
        WIRE(PlanCost) *cost = job ? find_cost(reply, job) : NULL;
        error = job && !cost ? -ENOMEM : 0;
        if (cost) {
            if (!cost->is_new)
                raise_to(&cost->before_ppm, before[i]);
            raise_to(&cost->after_ppm, after[i]);
        }
    }
    free(before);
    return error;
}

static int add_lane_costs(const struct job *trial, const struct residents *residents,
                          const struct packer_share *share, WIRE(PlanLane) * lane,
                          WIRE(PlanReply) * reply)
{
    size_t first, count = residents_of_lane(residents, share->lane, &first);
    struct packer_resident *jobs = calloc(count + 1, sizeof *jobs);
    if (!jobs)
        return -ENOMEM;
    if (count > 0)
        memcpy(jobs, residents->jobs + first, count * sizeof *jobs);
    jobs[count] = (struct packer_resident){
        .job = trial->id, .lane_ns = share->lane_ns, .timing = job_timing(trial)};
    int error = trial->profile->used.period_ns ? add_costs(trial, jobs, count + 1, lane, reply)
                                               /* the loss of a job without a period cannot be
                                                * predicted */
                                               : 0;
    free(jobs);
    return error;
}

/* --- the reply --- */

static WIRE(PlanLane) *
    plan_lane(const struct job *job, const struct packer_share *share, const struct answer *answer)
{
    static const char *const states[] = {"open", "parked", "to start"};
    const struct lane *at = lane_find(job->service, share->lane);
    WIRE(PlanLane) *lane = malloc(sizeof *lane);
    if (!lane)
        return NULL;
    *lane = MESSAGE_PART(PlanLane, plan_lane, .lane = at ? at->id : 0,
                         .other_jobs = at ? at->jobs : 0, .lane_ns = share->lane_ns);
    for (size_t i = 0; i < answer->plan.pieces_count; i++) {
        const struct packer_piece *piece = &answer->plan.pieces[i];
        if (piece->lane != share->lane)
            continue;
        lane->pieces++;
        lane->bytes += tensor_bytes(jobs_tensor(job, piece->tensor), piece->elements);
    }
    lane->state = strdup(states[share->state]);
    if (lane->state)
        return lane;
    free(lane);
    return NULL;
}

static int fill(const struct job *job, const struct answer *answer, WIRE(PlanReply) * reply)
{
    struct residents residents;
    size_t jobs = 1;
    list_for_each (node, &job->service->jobs)
        jobs++;
    reply->lanes = calloc(answer->plan.shares_count + 1, sizeof *reply->lanes);
    reply->jobs = calloc(jobs, sizeof *reply->jobs);
    if (!reply->lanes || !reply->jobs || residents_gather(job->service, NULL, &residents) < 0)
        return -ENOMEM;
    int error = 0;
    for (size_t i = 0; i < answer->plan.shares_count && error == 0; i++) {
        WIRE(PlanLane) *lane = plan_lane(job, &answer->plan.shares[i], answer);
        error = lane ? 0 : -ENOMEM;
        if (!lane)
            break;
        reply->lanes[reply->n_lanes++] = lane;
        error = add_lane_costs(job, &residents, &answer->plan.shares[i], lane, reply);
    }
    residents_free(&residents);
    return error;
}

static int answer_with(struct job *job, const WIRE(PlanRequest) * request, WIRE(PlanReply) * reply)
{
    struct answer answer = {0};
    struct err err = {0};
    int error = add_tensors(job, request, &err);
    if (error == 0) {
        set_times(job, request);
        error = place(job, &answer, &err);
    }
    struct profile_times known = profile_known(job->profile);
    reply->period_ns = known.period_ns;
    reply->lane_ns = known.lanes_ns;
    reply->code = error;
    reply->why = strdup(error < 0 ? err.text : share_why(answer.how));
    if (error < 0)
        return reply->why ? 0 : -ENOMEM;
    error = fill(job, &answer, reply);
    packer_plan_fini(&answer.plan);
    return reply->why ? error : -ENOMEM;
}

void plan_handle(struct peer *p, const envelope *request)
{
    const WIRE(PlanRequest) *wanted = request->plan_request;
    struct err err;
    int error = check_request(wanted, &err)
                    ?: quota_check_count(p->tenant, wanted->n_tensors, wanted->job, &err);
    if (error < 0)
        return peer_fail(p, request->id, error, "%s", err.text);
    struct job *job = create(p, wanted);
    WIRE(PlanReply) *reply = malloc(sizeof *reply);
    if (reply)
        *reply = MESSAGE_PART(PlanReply, plan_reply);
    if (!job || !reply || answer_with(job, wanted, reply) < 0)
        peer_fail_memory(p, request->id);
    else
        peer_send(p, &ENVELOPE(request->id, PLAN_REPLY, plan_reply, reply));
    gradpool__wire__plan_reply__free_unpacked(reply, NULL);
    if (job)
        destroy(job);
}
