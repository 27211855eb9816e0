/* Late workers enter all tensors between the same two iterations: one rank is held at the end of an
 * iteration while lanes add the late workers. If no rank can be held, late workers enter each
 * tensor at its open round. In a job with step records this is not possible, because all tensors of
 * a step have the same ranks: late workers first declare and connect, and then wait until a rank
 * can be held. This file decides when the ranks change; regroup.c changes them (RULES.md: K52,
 * K108). */
#include "svc/base/log.h"
#include "svc/coordinator/job/claim.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/iteration_hold.h"
#include "svc/coordinator/session/kept.h"
#include "svc/coordinator/session/session.h"
#include "svc/coordinator/snapshot/snapshot.h"

#include <errno.h>
#include <stdio.h>

#define DECLARE_NS NS_PER_S      /* longest time between two declares of a late worker */
#define ENTER_NS (10 * NS_PER_S) /* time after which a waiting EnterRequest is handled again */

bool entering_is_strict(const struct job *job) { return job->index->has_steps; }

/* A late worker without a connection counts as a worker that declares before its entry, because
 * after a restart the coordinator does not know yet whether the worker will request its entry. */
bool entering_is_ahead(const struct job *job, uint32_t rank)
{
    const struct session *session = job->sessions[rank];
    return session && (session->asks_entry || !session->peer) && entering_is_strict(job) &&
           members_is_new(job, rank);
}

bool entering_may(const struct job *job, uint32_t rank)
{
    return !entering_is_ahead(job, rank) ||
           (job->sessions[rank]->peer && job->sessions[rank]->wants_entry);
}

static bool is_coming(const struct job *job, uint32_t rank)
{
    return members_have(job, rank) && members_is_new(job, rank) && entering_may(job, rank);
}

static bool has_coming(const struct job *job)
{
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (is_coming(job, rank))
            return true;
    return false;
}

static void told_at_once(const struct job *job, const char *why)
{
    log_info("job %s: late workers enter in the middle of an iteration: %s", job->name, why);
}

/* Schedules another attempt to hold a rank, after RETRY_NS. */
static void entering_wait(struct job *job, const char *why)
{
    job->ranks->entering = ENTERING_NOT;
    log_info("job %s: late workers wait for the end of a step: %s", job->name, why);
    service_retry_later(job->service);
}

static void came(struct service *s, uint64_t id, int code, const char *text)
{
    struct job *job = jobs_find_id(s, (uint32_t)id);
    if (!job || code == -ECONNRESET)
        return;
    if (code < 0 && entering_is_strict(job))
        return entering_wait(job, text);
    job->ranks->entering = code < 0 ? ENTERING_AT_ONCE : ENTERING_NOT;
    if (code < 0)
        told_at_once(job, text);
    holding_end_in(job, CALL_DEADLINE_NS);
    regrouping_check(job);
    if (!has_coming(job))
        holding_end(job);
    else if (!job_has_claim(job, CLAIM_REGROUP))
        holding_end_in(job, DECLARE_NS);
}

static bool enter_at_once(struct job *job)
{
    if (job->ranks->entering == ENTERING_WAITS)
        holding_end(job);
    job->ranks->entering = ENTERING_AT_ONCE;
    return true;
}

/* Returns whether the regrouping may begin although no rank can be held. */
static bool enter_without_hold(struct job *job, const char *why)
{
    if (entering_is_strict(job)) {
        entering_wait(job, why);
        return false;
    }
    told_at_once(job, why);
    return enter_at_once(job);
}

/* Returns whether the rank has entered some of the tensors that it has declared, but not all. */
static bool waits_half_way(const struct job *job, uint32_t rank)
{
    const struct session *session = job->sessions[rank];
    bool has_some = false, waits = false;
    for (size_t i = 0; session && members_have(job, rank) && i < job->tensors_count; i++) {
        const struct tensor *tensor = job->tensors[i];
        bool has_entered = members_has_entered(tensor, session);
        if (tensor->failure || !tensor_has_rank(tensor, rank))
            continue;
        has_some |= has_entered;
        waits |= !has_entered;
    }
    return has_some && waits;
}

/* Returns whether a rank has entered only some of its tensors. The other tensors wait for this
 * rank, so no rank can reach the end of an iteration. */
static bool hinders_all(const struct job *job, char *ret_text, size_t text_bytes)
{
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        if (!waits_half_way(job, rank))
            continue;
        snprintf(ret_text, text_bytes, "rank %u trains already, and has just declared more", rank);
        return true;
    }
    return false;
}

static bool ask_to_hold(struct job *job)
{
    struct err err;
    char text[80];
    if (hinders_all(job, text, sizeof text))
        return enter_without_hold(job, text);
    if (job->ranks->entering == ENTERING_WAITS)
        return false;
    saving_give_way(job, "workers come");
    if (holding_begin(job, HOLD_ROUNDS, came, job->id, &err) < 0)
        return enter_without_hold(job, err.text);
    job->ranks->entering = ENTERING_WAITS;
    return false;
}

bool entering_may_begin(struct job *job, bool somebody_goes)
{
    bool comes = job->ranks->entering == ENTERING_WAITS || has_coming(job);
    bool is_allowed = job->ranks->entering == ENTERING_AT_ONCE && !entering_is_strict(job);
    if (is_allowed)
        return true;
    if (somebody_goes || !comes)
        return enter_at_once(job);
    return holding_is_held(job, HOLD_ROUNDS) || ask_to_hold(job);
}

void entering_asked_for(struct job *job)
{
    if (job->ranks->entering != ENTERING_WAITS || !job->ranks->is_growing)
        return;
    holding_end(job);
    job->ranks->entering = ENTERING_NOT;
}

static bool lacks(const struct session *session, const struct tensor *tensor)
{
    return !tensor->failure && terms_have_rank(&tensor->terms, session->rank) &&
           !members_has_entered(tensor, session);
}

static bool rank_lacks_tensors(const struct job *job, uint32_t rank)
{
    const struct session *session = job->sessions[rank];
    for (size_t i = 0; session && members_have(job, rank) && i < job->tensors_count; i++)
        if (lacks(session, job->tensors[i]))
            return true;
    return false;
}

static bool lacks_tensors(const struct job *job)
{
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (rank_lacks_tensors(job, rank))
            return true;
    return false;
}

/* Returns whether a late worker will soon declare more tensors. In a job with step records, a
 * worker has declared all tensors when its EnterRequest arrives. */
static bool awaits_declares(const struct job *job)
{
    bool is_strict = entering_is_strict(job);
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        bool is_known = is_strict && session && session->asks_entry;
        if (is_known ? is_coming(job, rank) : rank_lacks_tensors(job, rank))
            return true;
    }
    return false;
}

void entering_waits(struct job *job)
{
    bool is_idle = job->ranks->entering == ENTERING_WAITS && !has_coming(job);
    if (is_idle)
        holding_end(job);
    if (is_idle || job->ranks->entering == ENTERING_AT_ONCE)
        job->ranks->entering = ENTERING_NOT;
}

/* Called after the ranks have changed. If a late worker has not declared all tensors yet, the held
 * rank waits DECLARE_NS longer for the missing declares. Otherwise the hold ends. */
void entering_went_on(struct job *job)
{
    job->ranks->entering = ENTERING_NOT;
    job->ranks->is_growing =
        job->ranks->is_growing && (members_count(job) < job->ranks->wanted || lacks_tensors(job));
    kept_check_soon(job->service, entering_handle);
    if (!holding_is_held(job, HOLD_ROUNDS))
        return;
    if (awaits_declares(job))
        holding_end_in(job, DECLARE_NS);
    else
        holding_end(job);
}

/* Handles an EnterRequest, which is answered when the worker has entered. */
void entering_handle(struct peer *p, const envelope *message)
{
    if (!p->session)
        return peer_fail(p, message->id, -ENOTCONN, "this connection has no job; join a job first");
    struct job *job = p->session->job;
    if (job->failure)
        return peer_fail(p, message->id, -ECONNRESET, "job %s has failed: %s", job->name,
                         job->failure);
    if (!entering_is_ahead(job, p->session->rank))
        return peer_reply_done(p, message->id);
    if (!p->session->wants_entry)
        log_info("%s has declared its tensors and enters", SESSION_NAME(p->session));
    p->session->wants_entry = true;
    kept_add(p, message, ENTER_NS, entering_handle, "their entry");
    regrouping_check(job);
}
