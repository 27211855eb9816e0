/* Membership of elastic jobs: leave, loss, resize. Decides which ranks are members;
 * membership/regroup.c then informs lanes and workers (RULES.md: K40 to K45). */
#include "svc/coordinator/membership/membership.h"

#include "svc/base/log.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/table/ranks.h"

#include <errno.h>
#include <string.h>

/* --- messages --- */

WIRE(Membership) members_describe(const struct job *job, uint64_t *ranks)
{
    memset(ranks, 0, TERMS_RANK_WORDS * sizeof *ranks);
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (members_have(job, rank))
            ranks_add(ranks, rank);
    return MESSAGE_PART(Membership, membership, .version = job->ranks->version,
                        .workers = job->ranks->wanted,
                        .ranks = {TERMS_RANK_WORDS * sizeof *ranks, (uint8_t *)ranks});
}

void members_tell(const struct job *job, const struct session *to)
{
    uint64_t ranks[TERMS_RANK_WORDS];
    if (!job->terms->is_elastic)
        return;
    WIRE(Membership) membership = members_describe(job, ranks);
    envelope e = ENVELOPE(0, MEMBERSHIP, membership, &membership);
    if (!to)
        jobs_broadcast((struct job *)job, NULL, &e);
    else if (to->peer)
        peer_send(to->peer, &e);
}

static int keep(const struct job *job, struct err *err)
{
    struct store_row row;
    jobs_row(job, &row);
    return store_put_one(job->service->store, &row, err);
}

/* --- leaving --- */

void members_leave(struct session *session)
{
    struct job *job = session->job;
    struct err err;
    if (entering_is_ahead(job, session->rank))
        regrouping_let_go(job, session->rank);
    for (size_t i = 0; i < job->tensors_count; i++)
        tensor_set_rank(job->tensors[i], session->rank, false);
    job->ranks->version++;
    job->ranks->changed_ns = clock_now_ns();
    if (keep(job, &err) < 0)
        log_error("%s", err.text);
    members_tell(job, NULL);
    regrouping_check(job);
    shards_forget_ranks(job);
    job->service->on->job->tensors_are_settled(job);
}

/* --- resizing --- */

/* Returns the number of initial ranks after a resize. The job waits for each initial rank below
 * this number that has not joined. A resize to the current size ends the wait: the missing rank may
 * have ended before its join, unseen by the service (K45). */
static uint32_t founding_after(const struct job *job, uint32_t workers)
{
    uint32_t rank = 0;
    while (rank < job->ranks->founding && rank < workers &&
           (job->sessions[rank] || workers != job->ranks->wanted))
        rank++;
    return rank;
}

/* Returns the job of a worker's request, or the job that an operator's request names. NULL: the
 * request was refused. */
static struct job *resized_job(struct peer *p, const envelope *message)
{
    const WIRE(ResizeRequest) *request = message->resize_request;
    if (p->role == GRADPOOL__WIRE__ROLE__ROLE_OPERATOR)
        return jobs_find_meant(p, message->id, request->job, request->tenant);
    if (!p->session)
        peer_fail(p, message->id, -ENOTCONN, "this connection has no job; join a job first");
    return p->session ? p->session->job : NULL;
}

static bool may_resize(struct peer *p, uint64_t request, const struct job *job, uint32_t workers)
{
    if (job->failure)
        peer_fail(p, request, -ECONNRESET, "job %s has failed: %s", job->name, job->failure);
    else if (!job->terms->is_elastic)
        peer_fail(p, request, -EOPNOTSUPP,
                  "job %s cannot change its %u workers; join with workers_max, or with "
                  "on_worker_loss GP_CONTINUE",
                  job->name, job->workers);
    else if (workers < 1 || workers > job->workers)
        peer_fail(p, request, -EINVAL,
                  "job %s cannot have %u workers; expected 1 to %u, its workers_max", job->name,
                  workers, job->workers);
    else
        return true;
    return false;
}

void members_handle_resize(struct peer *p, const envelope *message)
{
    uint32_t workers = message->resize_request->workers;
    struct err err;
    struct job *job = resized_job(p, message);
    if (!job || !may_resize(p, message->id, job, workers))
        return;
    uint32_t wanted = job->ranks->wanted, founding = job->ranks->founding;
    job->ranks->founding = founding_after(job, workers);
    job->ranks->wanted = workers;
    job->ranks->version++;
    int error = keep(job, &err);
    if (error < 0) {
        job->ranks->wanted = wanted;
        job->ranks->founding = founding;
        job->ranks->version--;
        return peer_fail(p, message->id, error, "%s", err.text);
    }
    job->ranks->changed_ns = clock_now_ns();
    /* an operator's request holds no rank in gp_job_resize() */
    job->ranks->is_growing = p->session && workers > members_count(job);
    job->ranks->grower = p->session ? p->session->rank : 0;
    entering_asked_for(job);
    log_info("job %s is resized to %u workers, from %u", job->name, workers, wanted);
    members_tell(job, NULL);
    regrouping_check(job);
    peer_reply_done(p, message->id);
}
