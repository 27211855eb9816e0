/* Rests of jobs (SL20 to SL24). The workers of a resting job sleep before their next step, and hold
 * no slot. Ranks from `workers_min` on leave first, because a job goes on with `workers_min`
 * workers. */
#include "svc/base/log.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/slots/internal.h"

#include <errno.h>

#define REST_NOT_STORED "job %s: its rest was not stored: %s"

/* --- begin and end --- */

/* Returns whether all workers that must leave before the rest have left. */
static bool rest_is_narrow(const struct slots_job *job)
{
    for (uint32_t rank = 0; rank < job->reach; rank++)
        if (job->workers[rank].state != SLOTS_NONE && job->workers[rank].is_leaving)
            return false;
    return true;
}

/* Stores that workers have slots again, before they wake. */
static int rest_keep_woken(struct slots_job *job)
{
    for (uint32_t rank = 0; rank < job->reach; rank++) {
        if (!job->workers[rank].is_waking)
            continue;
        if (slots_worker_keep(job, rank) < 0)
            return -EIO;
        job->workers[rank].is_waking = false;
    }
    return 0;
}

void slots_rest_carry_out(struct slots_job *job, struct job *of)
{
    bool must_rest = job->rest->is_ordered;
    struct err err;
    if (of->failure || job->is_ending || members_rests(of) == must_rest)
        return;
    if (must_rest ? !rest_is_narrow(job) : rest_keep_woken(job) < 0)
        return;
    if (members_rest(of, must_rest, &err) < 0)
        return log_error(REST_NOT_STORED, job->name, err.text);
    log_info("job %s %s", job->name, must_rest ? "rests" : "goes on");
    slots_send_rest(job, must_rest);
}

void slots_rest_repeat(const struct slots_job *job)
{
    const struct job *of = slots_training(job);
    if (of && of->ranks->rest > 0) /* otherwise the job has never rested */
        slots_send_rest(job, members_rests(of));
}

void slots_rest_allow(struct slots_job *job, const struct job *of)
{
    bool may_rest = job->rest->may && of && members_can_rest(of);
    if (may_rest == job->rest->is_allowed)
        return;
    job->rest->is_allowed = may_rest;
    slots_decide(
        job->pool->site,
        (struct scheduler_event){.kind = SCHEDULER_MAY_REST, .job = job->id, .may_rest = may_rest});
}

/* --- messages --- */

/* Frees the slot of a worker that sleeps. */
static void rest_fall_asleep(struct slots_job *job, uint32_t rank)
{
    struct slots_worker *worker = &job->workers[rank];
    if (worker->state != SLOTS_STARTED || worker->is_leaving || !job->rest->is_ordered)
        return;
    worker->state = SLOTS_RESTING;
    if (slots_worker_keep(job, rank) < 0) {
        worker->state = SLOTS_STARTED; /* the slot stays in use */
        return;
    }
    slots_decide(job->pool->site, (struct scheduler_event){
                                      .kind = SCHEDULER_WORKER_OUT, .job = job->id, .rank = rank});
    slots_look_soon(job->pool->service);
}

void slots_hear_resting(struct slots_job *job, uint32_t rank, uint32_t rest)
{
    const struct job *of = slots_training(job);
    if (of && members_rests(of) && of->ranks->rest == rest)
        rest_fall_asleep(job, rank);
}

void slots_handle_resting(struct peer *p, const envelope *message)
{
    if (!p->session)
        return peer_fail(p, message->id, -ENOTCONN, "this connection has no job; join a job first");
    const struct job *of = p->session->job;
    struct slots_job *job = slots_find_job(p->service, of->tenant, of->name);
    if (job && p->session->rank < job->workers_max)
        slots_hear_resting(job, p->session->rank, message->resting_request->rest);
    peer_reply_done(p, message->id);
}

/* Returns whether a process of the job runs. A process without a session cannot sleep, so a rest
 * would end the process. */
static bool rest_has_started(const struct slots_job *job)
{
    for (uint32_t rank = 0; rank < job->reach; rank++)
        if (job->workers[rank].state >= SLOTS_STARTED)
            return true;
    return false;
}

static bool rest_is_refused(struct peer *p, uint64_t id, const struct slots_job *job)
{
    const struct job *of = slots_training(job);
    if (job->is_complete || job->is_ending)
        peer_fail(p, id, -EALREADY, "job %s cannot rest: it is ending", job->name);
    else if (!of && rest_has_started(job))
        peer_fail(p, id, -EAGAIN, "job %s cannot rest yet: no worker has joined", job->name);
    else if (of && !members_can_rest(of))
        peer_fail(p, id, -EOPNOTSUPP,
                  "job %s cannot rest: its script has no steps; use gradpool.elastic.Run",
                  job->name);
    else
        return false;
    return true;
}

void slots_handle_standing(struct peer *p, const envelope *message)
{
    const WIRE(PoolStanding) *standing = message->pool_standing;
    struct slots_pool *pool = slots_pool_of(p);
    struct slots_job *job = pool ? slots_find_job(p->service, pool->tenant, standing->job) : NULL;
    if (!job || job->pool != pool)
        return peer_fail(p, message->id, -ENOENT, "this pool has no job %.127s", standing->job);
    job->rest->has_standing = true;
    job->rest->rung = standing->rung;
    job->rest->value = standing->value;
    slots_decide(pool->site, (struct scheduler_event){.kind = SCHEDULER_STANDING,
                                                      .job = job->id,
                                                      .rung = standing->rung,
                                                      .value = standing->value});
    peer_reply_done(p, message->id);
    slots_carry_out(pool->site);
}

void slots_handle_rest(struct peer *p, const envelope *message)
{
    const WIRE(PoolRest) *order = message->pool_rest;
    struct slots_pool *pool = slots_pool_of(p);
    struct slots_job *job = pool ? slots_find_job(p->service, pool->tenant, order->job) : NULL;
    struct err err;
    if (!job || job->pool != pool)
        return peer_fail(p, message->id, -ENOENT, "this pool has no job %.127s", order->job);
    if (order->rests && rest_is_refused(p, message->id, job))
        return;
    bool was_by_user = job->rest->is_by_user;
    job->rest->is_by_user = order->rests;
    if (slots_job_keep(job, &err) < 0) {
        job->rest->is_by_user = was_by_user;
        return peer_fail(p, message->id, err.code, REST_NOT_STORED, job->name, err.text);
    }
    slots_decide(pool->site,
                 (struct scheduler_event){.kind = order->rests ? SCHEDULER_REST_ORDERED
                                                               : SCHEDULER_GO_ON_ORDERED,
                                          .job = job->id});
    peer_reply_done(p, message->id);
    slots_carry_out(pool->site);
}
