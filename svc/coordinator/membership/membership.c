/* Membership of elastic jobs: leave, loss, resize. Decides which ranks are members;
 * membership/regroup.c then informs lanes and workers (RULES.md: K40 to K45). */
#include "svc/coordinator/membership/membership.h"

#include "svc/base/log.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/session.h"
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
                        .workers = job->ranks->wanted, .rest = job->ranks->rest,
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
 * this number that has not joined. A resize to the current size ends this wait, because the missing
 * rank may have ended before its join, unseen by the service (K45). */
static uint32_t founding_after(const struct job *job, uint32_t workers)
{
    uint32_t rank = 0;
    while (rank < job->ranks->founding && rank < workers &&
           (job->sessions[rank] || workers != job->ranks->wanted))
        rank++;
    return rank;
}

static int members_check_resize(const struct job *job, uint32_t workers, struct err *err)
{
    if (job->failure)
        return err_set(err, -ECONNRESET, "job %s has failed: %s", job->name, job->failure);
    if (!job->terms->is_elastic)
        return err_set(err, -EOPNOTSUPP,
                       "job %s cannot change its %u workers; join with workers_max, or with "
                       "on_worker_loss GP_CONTINUE",
                       job->name, job->workers);
    if (workers < 1 || workers > job->workers)
        return err_set(err, -EINVAL,
                       "job %s cannot have %u workers; expected 1 to %u, its workers_max",
                       job->name, workers, job->workers);
    return 0;
}

static bool members_are_removed(const struct job *job, uint32_t rank)
{
    return rank >= job->ranks->wanted && job->sessions[rank] && session_is_in(job->sessions[rank]);
}

/* Stores the new size, and marks the workers that the size removes. A later resize may include
 * their ranks again, for new workers: a worker that has begun to leave does not return. */
static int members_keep_size(struct job *job, struct err *err)
{
    struct store *store = job->service->store;
    struct store_row row;
    store_begin(store);
    jobs_row(job, &row);
    store_put(store, &row);
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        if (!members_are_removed(job, rank))
            continue;
        session_row(job->sessions[rank], &row);
        row.session.was_removed = true;
        store_put(store, &row);
    }
    int error = store_commit(store, err);
    for (uint32_t rank = 0; rank < job->workers && error == 0; rank++)
        if (members_are_removed(job, rank))
            job->sessions[rank]->was_removed = true;
    return error;
}

int members_resize_to(struct job *job, uint32_t workers, const struct session *grower,
                      struct err *err)
{
    uint32_t wanted = job->ranks->wanted, founding = job->ranks->founding;
    int error = members_check_resize(job, workers, err);
    if (error < 0)
        return error;
    job->ranks->founding = founding_after(job, workers);
    job->ranks->wanted = workers;
    job->ranks->version++;
    error = members_keep_size(job, err);
    if (error < 0) {
        job->ranks->wanted = wanted;
        job->ranks->founding = founding;
        job->ranks->version--;
        return error;
    }
    job->ranks->changed_ns = clock_now_ns();
    job->ranks->is_growing = grower && workers > members_count(job);
    job->ranks->grower = grower ? grower->rank : 0;
    entering_asked_for(job);
    log_info("job %s is resized to %u workers, from %u", job->name, workers, wanted);
    members_tell(job, NULL);
    regrouping_check(job);
    return 0;
}

int members_rest(struct job *job, bool rests, struct err *err)
{
    if (rests == members_rests(job))
        return 0;
    job->ranks->rest++;
    int error = keep(job, err);
    if (error < 0)
        job->ranks->rest--;
    else
        members_tell(job, NULL);
    return error;
}

/* Returns the job of a worker's request, or the job that an operator's request names. NULL: the
 * request was refused, and the failure was sent. */
static struct job *members_resized(struct peer *p, const envelope *message)
{
    const WIRE(ResizeRequest) *request = message->resize_request;
    if (p->role == GRADPOOL__WIRE__ROLE__ROLE_OPERATOR)
        return jobs_find_meant(p, message->id, request->job, request->tenant);
    if (!p->session)
        peer_fail(p, message->id, -ENOTCONN, "this connection has no job; join a job first");
    return p->session ? p->session->job : NULL;
}

void members_handle_resize(struct peer *p, const envelope *message)
{
    struct err err;
    struct job *job = members_resized(p, message);
    if (!job)
        return;
    int error = p->session ? 0 : job->service->on->job->may_resize(job, &err);
    if (error == 0)
        error = members_resize_to(job, message->resize_request->workers, p->session, &err);
    if (error < 0)
        return peer_fail(p, message->id, error, "%s", err.text);
    peer_reply_done(p, message->id);
}
