/* Who is in a job whose workers come and go: joining late, leaving, being lost, resizing. Decides
 * which ranks make a tensor's rounds; that lanes and workers follow is membership/regroup.c's.
 * README: K40 to K45. */
#include "svc/coordinator/membership/membership.h"

#include "svc/base/log.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool has_bit(const uint64_t *ranks, uint32_t rank)
{
    return ranks[rank / 64] >> (rank % 64) & 1;
}

static bool is_in(const struct session *session)
{
    return session->state == SESSION_JOINED || session->state == SESSION_AWAY;
}

bool members_have(const struct job *job, uint32_t rank)
{
    const struct session *session = job->sessions[rank];
    return session ? is_in(session) : rank < job->founding && rank < job->wanted;
}

bool members_is_gone(const struct job *job, uint32_t rank)
{
    return job->is_elastic && job->sessions[rank] && !is_in(job->sessions[rank]);
}

uint32_t members_count(const struct job *job)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        count += members_have(job, rank);
    return count;
}

uint32_t members_training(const struct job *job)
{
    uint32_t count = job->is_elastic ? members_count(job) : job->workers;
    return count ? count : 1;
}

void members_begin(struct tensor *tensor)
{
    const struct job *job = tensor->job;
    memset(tensor->members, 0, sizeof tensor->members);
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (members_have(job, rank) && terms_have_rank(&tensor->terms, rank))
            tensor->members[rank / 64] |= UINT64_C(1) << (rank % 64);
    tensor->grouped = job->version;
}

const struct terms *members_terms(const struct tensor *tensor, struct terms *buffer)
{
    if (!tensor->job->is_elastic)
        return &tensor->terms;
    *buffer = tensor->terms;
    memcpy(buffer->ranks, tensor->members, sizeof buffer->ranks);
    return buffer;
}

bool members_has_entered(const struct tensor *tensor, const struct session *session)
{
    return !session->job->is_elastic ||
           (has_bit(tensor->members, session->rank) && session->entered <= tensor->grouped);
}

bool members_is_new(const struct job *job, uint32_t rank)
{
    const struct session *session = job->sessions[rank];
    if (!session || session->entered == 0)
        return false;
    for (size_t i = 0; i < job->tensors_count; i++)
        if (members_has_entered(job->tensors[i], session))
            return false;
    return true;
}

bool members_is_leaving(const struct job *job, uint32_t rank)
{
    if (!job->is_elastic || members_have(job, rank))
        return false;
    for (size_t i = 0; i < job->tensors_count; i++)
        if (!job->tensors[i]->failure && has_bit(job->tensors[i]->members, rank))
            return true;
    return false;
}

/* --- telling --- */

void members_describe(const struct job *job, uint64_t *ranks, WIRE(Membership) * ret_membership)
{
    memset(ranks, 0, TERMS_RANK_WORDS * sizeof *ranks);
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (members_have(job, rank))
            ranks[rank / 64] |= UINT64_C(1) << (rank % 64);
    *ret_membership = (WIRE(Membership))GRADPOOL__WIRE__MEMBERSHIP__INIT;
    ret_membership->version = job->version;
    ret_membership->workers = job->wanted;
    ret_membership->ranks.data = (uint8_t *)ranks;
    ret_membership->ranks.len = TERMS_RANK_WORDS * sizeof *ranks;
}

void members_tell(const struct job *job, const struct session *to)
{
    uint64_t ranks[TERMS_RANK_WORDS];
    WIRE(Membership) membership;
    if (!job->is_elastic)
        return;
    members_describe(job, ranks, &membership);
    envelope e = ENVELOPE_INIT;
    e.body_case = BODY(MEMBERSHIP);
    e.membership = &membership;
    if (!to)
        jobs_broadcast((struct job *)job, NULL, &e);
    else if (to->peer)
        peer_send(to->peer, &e);
}

static int keep(const struct job *job, struct err *err)
{
    struct store *store = job->service->store;
    struct store_row row;
    jobs_row(job, &row);
    store_begin(store);
    store_put(store, &row);
    return store_commit(store, err);
}

/* --- leaving --- */

void members_leave(struct session *session)
{
    struct job *job = session->job;
    struct err err;
    for (size_t i = 0; i < job->tensors_count; i++)
        tensor_set_rank(job->tensors[i], session->rank, false);
    job->version++;
    job->changed_ns = clock_now_ns();
    if (keep(job, &err) < 0)
        log_error("%s", err.text);
    members_tell(job, NULL);
    regrouping_check(job);
    declare_check_waits(job);
}

void members_handle_lost(struct peer *p, const envelope *message)
{
    const WIRE(WorkerLost) *said = message->worker_lost;
    struct lane *lane = lane_find(p->service, said->lane);
    struct job *job = jobs_find_id(p->service, said->job_id);
    if (!p->aggregator || !lane || lane->aggregator != p->aggregator || !job || job->failure ||
        said->rank >= job->workers || (job->is_elastic && members_is_new(job, said->rank)))
        return;
    struct session *session = job->sessions[said->rank];
    bool stays = !job->is_elastic || (said->may_return && session && is_in(session));
    if (session && stays)
        session_broken(session, lane->id);
    else if (session && is_in(session))
        session_cut_off(session, lane->id);
}

/* --- resizing --- */

/* Who is still to come comes late from the new size on; below it he is waited for, unless the
 * number that holds is asked for: he may have died on the way, of which nobody would hear (K45).
 * Who has come is in by his session, whatever this says. */
static uint32_t founding_after(const struct job *job, uint32_t workers)
{
    uint32_t rank = 0;
    while (rank < job->founding && rank < workers &&
           (job->sessions[rank] || workers != job->wanted))
        rank++;
    return rank;
}

void members_handle_resize(struct peer *p, const envelope *message)
{
    uint32_t workers = message->resize_request->workers;
    struct err err;
    if (!p->session)
        return peer_fail(p, message->id, -ENOTCONN, "join a job first");
    struct job *job = p->session->job;
    if (job->failure)
        return peer_fail(p, message->id, -ECONNRESET, "job %s has failed: %s", job->name,
                         job->failure);
    if (!job->is_elastic)
        return peer_fail(p, message->id, -EOPNOTSUPP,
                         "job %s keeps its %u workers: it was joined neither with a larger "
                         "workers_max nor to go on when a worker is lost",
                         job->name, job->workers);
    if (workers < 1 || workers > job->workers)
        return peer_fail(p, message->id, -EINVAL,
                         "job %s cannot have %u workers; expected 1 to %u, its workers_max",
                         job->name, workers, job->workers);
    uint32_t wanted = job->wanted, founding = job->founding;
    job->founding = founding_after(job, workers);
    job->wanted = workers;
    job->version++;
    int error = keep(job, &err);
    if (error < 0) {
        job->wanted = wanted;
        job->founding = founding;
        job->version--;
        return peer_fail(p, message->id, error, "%s", err.text);
    }
    job->changed_ns = clock_now_ns();
    job->is_growing = workers > members_count(job);
    job->grower = p->session->rank;
    entering_asked_for(job);
    log_info("job %s shall have %u workers instead of %u", job->name, workers, wanted);
    members_tell(job, NULL);
    regrouping_check(job);
    peer_reply_done(p, message->id);
}
