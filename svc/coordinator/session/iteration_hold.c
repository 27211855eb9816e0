/* Holds one rank of a job at the end of an iteration. Owns struct holding. The hold ends as soon as
 * the operation that began it no longer needs it (RULES.md: K51). */
#include "svc/coordinator/session/iteration_hold.h"

#include "svc/coordinator/job/members.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/peer/peer.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* iteration_ns: longest wait for the end of an iteration. rest_ns: a rank that begins no round for
 * this time is assumed to be at the end of an iteration. Both times are long for snapshots, because
 * a wrong assumption would spoil the snapshot. For late workers they are short. */
static const struct hold_patience {
    uint64_t iteration_ns, rest_ns;
} patience[] = {
    [HOLD_UPDATES] = {60 * NS_PER_S, 2 * NS_PER_S},
    [HOLD_ROUNDS] = {10 * NS_PER_S, 200 * NS_PER_MS},
};

struct holding {
    struct job *job;
    struct timer timer;
    uint64_t id, until_ns;
    uint32_t rank;
    enum hold_scope scope;
    bool rests, saves, is_held;
    held_fn done;
    uint64_t context;
};

/* --- choice of the rank --- */

static bool is_meant(const struct tensor *tensor, enum hold_scope scope)
{
    bool is_ours = tensor_is_reserved(tensor);
    if (tensor->failure || is_ours)
        return false;
    return scope == HOLD_UPDATES
               ? tensor->terms.rule != 0
               : terms_are_for_all(&tensor->terms) && tensor->terms.quorum == QUORUM_ALL;
}

static bool is_in_all(const struct session *session, enum hold_scope scope)
{
    const struct job *job = session->job;
    job_each_tensor (tensor, job)
        if (is_meant(tensor, scope) &&
            !(tensor_has_rank(tensor, session->rank) && members_has_entered(tensor, session)))
            return false;
    return true;
}

static const struct session *take_rank(const struct job *job, uint32_t rank, enum hold_scope scope)
{
    const struct session *session = job->sessions[rank];
    bool is_there = session && session->state == SESSION_JOINED && session->peer;
    return is_there && is_in_all(session, scope) ? session : NULL;
}

/* Returns the rank to hold. The rank that waits in gp_job_resize() is chosen first, because this
 * rank may be at the end of an iteration already. No other rank can reach the end of the iteration
 * without this rank. */
static const struct session *find_rank(const struct job *job, enum hold_scope scope)
{
    const struct session *found =
        job->ranks->is_growing ? take_rank(job, job->ranks->grower, scope) : NULL;
    for (uint32_t rank = 0; !found && rank < job->workers; rank++)
        found = take_rank(job, rank, scope);
    return found;
}

/* --- messages --- */

static void tell(const struct holding *h, bool is_over)
{
    const struct session *session = h->job->sessions[h->rank];
    if (session && session->peer) /* a rank without a connection does not begin rounds */
        peer_reply(session->peer, 0, HOLD, hold, .hold = h->id, .is_over = is_over,
                   .scope = (WIRE(HoldScope))h->scope);
}

void holding_end(struct job *job)
{
    struct holding *h = job->ranks->holding;
    if (!h)
        return;
    job->ranks->holding = NULL;
    timer_stop(&h->timer);
    tell(h, true);
    free(h);
}

static void held(struct holding *h)
{
    h->is_held = true;
    timer_stop(&h->timer);
    h->done(h->job->service, h->context, 0, "");
}

static void give_up(struct holding *h, int code, const char *text)
{
    struct service *s = h->job->service;
    held_fn done = h->done;
    uint64_t context = h->context;
    holding_end(h->job);
    done(s, context, code, text);
}

/* --- waiting --- */

static void too_late(struct holding *h)
{
    char text[2 * SESSION_NAME_BYTES];
    snprintf(text, sizeof text, "%s has not reached the end of an iteration within %u s",
             SESSION_NAME(h->job->sessions[h->rank]),
             (unsigned)(patience[h->scope].iteration_ns / NS_PER_S));
    give_up(h, -ETIMEDOUT, text);
}

static void expired(struct timer *timer)
{
    struct holding *h = container_of(timer, struct holding, timer);
    if (h->is_held)
        holding_end(h->job);
    else if (h->rests)
        held(h);
    else
        too_late(h);
}

static void wait_until(struct holding *h, uint64_t until_ns)
{
    timer_stop(&h->timer);
    timer_start(h->job->service->loop, &h->timer, until_ns);
}

int holding_begin(struct job *job, enum hold_scope scope, held_fn done, uint64_t context,
                  struct err *err)
{
    const struct session *session = find_rank(job, scope);
    if (job->ranks->holding)
        return err_set(err, -EAGAIN, "a rank of job %.64s is held already; try again later",
                       job->name);
    if (!session)
        return err_set(err, -EAGAIN, "job %.64s: no connected rank has declared all its tensors",
                       job->name);
    struct holding *h = malloc(sizeof *h);
    if (!h)
        return err_set(
            err, -ENOMEM,
            "gradpool serve has no memory for a hold of job %.64s; raise its memory limit",
            job->name);
    *h = (struct holding){.job = job,
                          .id = ++job->service->door->next_id,
                          .until_ns = clock_now_ns() + patience[scope].iteration_ns,
                          .rank = session->rank,
                          .scope = scope,
                          .done = done,
                          .context = context};
    job->ranks->holding = h;
    timer_init(&h->timer, expired);
    wait_until(h, h->until_ns);
    tell(h, false);
    return 0;
}

bool holding_is_held(const struct job *job, enum hold_scope scope)
{
    return job->ranks->holding && job->ranks->holding->is_held &&
           job->ranks->holding->scope == scope;
}

void holding_end_in(struct job *job, uint64_t wait_ns)
{
    if (job->ranks->holding && job->ranks->holding->is_held)
        wait_until(job->ranks->holding, clock_now_ns() + wait_ns);
}

void holding_rank_gone(const struct session *session)
{
    struct holding *h = session->job->ranks->holding;
    char text[2 * SESSION_NAME_BYTES];
    if (!h || h->rank != session->rank)
        return;
    snprintf(text, sizeof text, "%s has lost its control connection", SESSION_NAME(session));
    give_up(h, -EAGAIN, text);
}

void holding_job_ends(struct job *job)
{
    if (job->ranks->holding)
        give_up(job->ranks->holding, -ECONNRESET, "the job has ended");
}

/* --- states of the rank --- */

/* Handles a rank that has reported no end of an iteration. If the rank begins no round for rest_ns,
 * it is assumed to be at the end of an iteration. */
static void note_rest(struct holding *h, bool rests)
{
    uint64_t rested_ns = clock_now_ns() + patience[h->scope].rest_ns;
    h->rests = rests && rested_ns < h->until_ns;
    wait_until(h, h->rests ? rested_ns : h->until_ns);
}

/* Suspends the deadline while the rank itself takes a snapshot of its job, because a snapshot has
 * its own deadline. */
static void note_saving(struct holding *h, bool saves)
{
    if (h->saves && !saves)
        h->until_ns = clock_now_ns() + patience[h->scope].iteration_ns;
    h->saves = saves;
    if (saves)
        timer_stop(&h->timer);
}

static void take(struct holding *h, const WIRE(HeldRequest) * said)
{
    if (h->is_held)
        return; /* the message was sent before the hold, so it is ignored */
    note_saving(h, said->state == GRADPOOL__WIRE__HOLD_STATE__HOLD_SAVES);
    switch (said->state) {
    case GRADPOOL__WIRE__HOLD_STATE__HOLD_SAVES: return;
    case GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED: return held(h);
    case GRADPOOL__WIRE__HOLD_STATE__HOLD_RESTS: return note_rest(h, true);
    case GRADPOOL__WIRE__HOLD_STATE__HOLD_FAILED:
        return give_up(h, said->code == -EOPNOTSUPP ? -EOPNOTSUPP : -EAGAIN, said->text);
    default: note_rest(h, false);
    }
}

void holding_handle(struct peer *p, const envelope *message)
{
    const WIRE(HeldRequest) *said = message->held_request;
    const struct session *session = p->session;
    struct holding *h = session ? session->job->ranks->holding : NULL;
    bool is_meant = h && h->id == said->hold && h->rank == session->rank;
    if (is_meant && h->is_held && said->state == GRADPOOL__WIRE__HOLD_STATE__HOLD_SAVES)
        return peer_fail(p, message->id, -EBUSY, "a worker is entering the job");
    peer_reply_done(p, message->id);
    if (is_meant)
        take(h, said);
}
