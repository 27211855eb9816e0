/* Calls of a migration to lanes, and the answers. A message names pieces of one lane, at most
 * MESSAGE_PIECES_MAX. Pieces that were undeclared in the meantime are left out. Each call has a
 * deadline. migration.c decides the order of the steps. */
#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/migration/internal.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/wire/ranks.h"

#include <errno.h>
#include <stdlib.h>

/* --- the target allocates memory --- */

/* Adds the ranks of these pieces to `ranks`. */
static void add_ranks(const struct job *job, const WIRE(PieceSpec) * specs, size_t count,
                      uint64_t ranks[RANKS_WORDS])
{
    static const uint64_t none[RANKS_WORDS];
    for (size_t i = 0; i < count; i++) {
        const struct terms *terms = (const struct terms *)(const void *)specs[i].terms.data;
        bool is_for_all = specs[i].terms.len == 0 || terms_are_for_all(terms);
        for (uint32_t rank = 0; rank < job->workers && is_for_all; rank++)
            ranks_add(ranks, rank);
        for (size_t word = 0; word < RANKS_WORDS; word++)
            ranks[word] |= (is_for_all ? none : terms->ranks)[word];
    }
}

static bool has_connection(const struct job *job, uint32_t rank)
{
    return job->sessions[rank] && job->sessions[rank]->peer;
}

/* Returns whether the target may wait for the workers' connections. If a rank is away, the wait
 * would end only at its timeout; if the source is about to end, the move has no time for the
 * wait. */
static bool may_await(const struct migration *m, const struct migration_asked *asked,
                      const struct job *job, const uint64_t ranks[RANKS_WORDS])
{
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (ranks_have(ranks, rank) && !has_connection(job, rank))
            return false;
    for (size_t i = 0; i < asked->count; i++) {
        const struct lane *source = lane_find(m->service, m->travellers[asked->at[i]].source);
        if (!source || source->aggregator->is_stopping)
            return false;
    }
    return true;
}

/* Informs the workers of the target lane before the move, so that they connect early. When a worker
 * then requests a ticket, the target has the pieces already: pieces and ticket use the same
 * connection to the lane. */
static void tell_workers_ahead(const struct job *job, const uint64_t ranks[RANKS_WORDS],
                               const struct lane *lane)
{
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (ranks_have(ranks, rank) && has_connection(job, rank))
            peer_send(job->sessions[rank]->peer,
                      &MESSAGE(0, LANE_AHEAD, lane_ahead, .lane = lane->id));
}

static int ask_to_place(struct migration *m, struct lane *lane, struct migration_asked *asked)
{
    struct job *job = migration_job(m);
    size_t count = asked->count;
    _cleanup_free_ WIRE(PieceSpec) *specs = calloc(count, sizeof *specs);
    _cleanup_free_ struct terms *terms = calloc(count, sizeof *terms);
    if (!specs || !terms)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct tensor *tensor;
        struct piece *piece = jobs_piece(job, m->travellers[asked->at[i]].piece, &tensor);
        specs[i] = telling_spec(tensor, piece, &terms[i]);
        specs[i].holder = m->travellers[asked->at[i]].holder;
    }
    uint64_t ranks[RANKS_WORDS] = {0};
    add_ranks(job, specs, count, ranks);
    enum place_how how = may_await(m, asked, job, ranks) ? PLACE_AHEAD : PLACE_RECOVERING;
    int error = telling_ask(job, lane, m->epoch, how, specs, count, migration_answered, asked,
                            migration_asked_bytes(asked));
    if (error == 0)
        tell_workers_ahead(job, ranks, lane);
    return error;
}

void migration_prepare(struct migration *m, migration_fn then)
{
    migration_ask(m, m->by_target, ask_to_place, then);
}

/* --- the source finishes its round --- */

static void released(struct service *s, void *data, const envelope *reply, int code,
                     const char *text)
{
    const struct migration_asked *asked = data;
    struct migration *m = migration_awaiting(s, asked);
    if (!m)
        return;
    if (!reply)
        return migration_refused(m, code, text);
    const WIRE(ReleaseReply) *said = reply->release_reply;
    if (reply->body_case != BODY(RELEASE_REPLY) || said->n_rounds != asked->count ||
        said->n_state_bytes != asked->count)
        return migration_refused(m, -EBADMSG, "a lane's reply lacks the released pieces");
    if (m->rested_ns == 0)
        m->rested_ns = clock_now_ns();
    for (size_t i = 0; i < asked->count; i++) {
        m->travellers[asked->at[i]].round = said->rounds[i];
        m->travellers[asked->at[i]].state_bytes = said->state_bytes[i];
    }
    if (--m->pending == 0)
        m->then(m);
}

static int ask_to_release(struct migration *m, struct lane *lane, struct migration_asked *asked)
{
    _cleanup_free_ uint32_t *pieces = NULL;
    int error = migration_list(m, asked, &pieces);
    if (error < 0)
        return error;
    return lane_call(lane, released, asked, migration_asked_bytes(asked), RELEASE_REQUEST,
                     release_request, .job_id = m->job, .pieces = pieces, .n_pieces = asked->count,
                     .behind = true);
}

void migration_release(struct migration *m, migration_fn then)
{
    m->asks_release = true;
    migration_ask(m, m->by_source, ask_to_release, then);
}

/* --- the target has the whole state --- */

static int ask_to_install(struct migration *m, struct lane *lane, struct migration_asked *asked)
{
    _cleanup_free_ uint32_t *pieces = NULL;
    _cleanup_free_ uint64_t *rounds = calloc(asked->count, sizeof *rounds);
    int error = rounds ? migration_list(m, asked, &pieces) : -ENOMEM;
    if (error < 0)
        return error;
    for (size_t i = 0; i < asked->count; i++)
        rounds[i] = m->travellers[asked->at[i]].round;
    return lane_call(lane, migration_answered, asked, migration_asked_bytes(asked), INSTALL_REQUEST,
                     install_request, .job_id = m->job, .pieces = pieces, .n_pieces = asked->count,
                     .rounds = rounds, .n_rounds = asked->count);
}

void migration_install(struct migration *m, migration_fn then)
{
    migration_ask(m, m->by_target, ask_to_install, then);
}

/* --- after the switch --- */

/* Returns whether the lane has no piece of the job in any state. */
static bool is_empty(const struct job *job, const struct lane *lane)
{
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].lane == lane)
            return job->shares[i].pieces == 0;
    return true;
}

/* Handles the answer of a source to the order to drop pieces. The migration does not wait for a
 * source that is disconnected or lost: the coordinator repeats the order when the source's
 * aggregator returns (K9). */
static void let_go(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    struct migration *m = migration_awaiting(s, data);
    if (!m)
        return;
    if (!reply)
        log_warn("the source lane of a migration did not drop the moved pieces: %s; see the log of "
                 "its aggregator",
                 text);
    if (code == -ETIMEDOUT)
        m->feed(m, MIGRATOR_E_TIMEOUT);
    else if (--m->pending == 0)
        m->feed(m, MIGRATOR_E_RELEASED);
}

static int ask_to_let_go(struct migration *m, struct lane *lane, struct migration_asked *asked)
{
    struct job *job = migration_job(m);
    bool is_all = is_empty(job, lane);
    _cleanup_free_ uint32_t *pieces = NULL;
    int error = migration_list(m, asked, &pieces);
    if (error < 0)
        return error;
    error = lane_call(lane, let_go, asked, migration_asked_bytes(asked), DROP_REQUEST, drop_request,
                      .job_id = m->job, .pieces = pieces, .n_pieces = is_all ? 0 : asked->count);
    if (error == 0 && is_all)
        jobs_forget_share(job, lane);
    return error;
}

/* Memory for the orders to drop pieces was missing. Closes the connections to the sources, because
 * the coordinator sends these orders again after a reconnect (K9). */
static void meet_again(struct migration *m)
{
    for (size_t i = 0; i < m->count; i++) {
        struct lane *lane = lane_find(m->service, migration_lane_of(m, m->by_source, i));
        if (lane && lane->aggregator->peer)
            peer_break(lane->aggregator->peer);
    }
    m->pending = 0;
}

void migration_let_go(struct migration *m)
{
    if (migration_ask_all(m, m->by_source, ask_to_let_go) < 0)
        meet_again(m);
    if (m->pending == 0)
        m->feed(m, MIGRATOR_E_RELEASED);
}

/* --- messages whose answers are ignored --- */

static void drop_run(struct migration *m, struct job *job, struct lane *lane, uint32_t *pieces,
                     size_t count)
{
    bool is_all = !job || is_empty(job, lane);
    if (count == 0)
        return;
    telling_drop(lane, m->job, pieces, is_all ? 0 : count);
    if (job && is_all)
        jobs_forget_share(job, lane);
}

static void thaw_run(struct migration *m, struct job *job, struct lane *lane, uint32_t *pieces,
                     size_t count)
{
    if (count > 0)
        telling_thaw(lane, m->job, pieces, count);
}

enum telling { TELL_ALL, TELL_OF_GONE, TELL_OF_THOSE_THAT_ARE };

static bool is_told(const struct job *job, uint32_t piece, enum telling telling)
{
    bool is_gone = !job || !jobs_piece(job, piece, NULL);
    return telling == TELL_ALL || is_gone == (telling == TELL_OF_GONE);
}

/* If memory for the list of pieces is missing, closes the connection to each lane, because the
 * lane's pieces are compared with the store after the reconnect (K9). */
static void tell_all(struct migration *m, struct job *job, const uint32_t *order,
                     enum telling telling,
                     void (*tell)(struct migration *m, struct job *job, struct lane *lane,
                                  uint32_t *pieces, size_t count))
{
    _cleanup_free_ uint32_t *pieces = calloc(m->count + 1, sizeof *pieces);
    for (size_t first = 0, end; first < m->count; first = end) {
        struct lane *lane = lane_find(m->service, migration_lane_of(m, order, first));
        size_t count = 0;
        for (end = first; end < m->count && end - first < MESSAGE_PIECES_MAX &&
                          migration_lane_of(m, order, end) == migration_lane_of(m, order, first);
             end++)
            if (pieces && is_told(job, m->travellers[order[end]].piece, telling))
                pieces[count++] = m->travellers[order[end]].piece;
        if (lane && pieces)
            tell(m, job, lane, pieces, count);
        else if (lane && lane->aggregator->peer)
            peer_break(lane->aggregator->peer);
    }
}

void migration_drop_targets(struct migration *m, struct job *job, bool only_gone)
{
    tell_all(m, job, m->by_target, only_gone ? TELL_OF_GONE : TELL_ALL, drop_run);
}

void migration_thaw_sources(struct migration *m, struct job *job)
{
    if (m->asks_release)
        tell_all(m, job, m->by_source, TELL_OF_THOSE_THAT_ARE, thaw_run);
}
