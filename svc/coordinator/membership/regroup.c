/* Regrouping: brings the lanes and workers of a job to the current membership, or to the members of
 * its present stage (K174), for all tensors together. Lanes release the pieces. Then lanes receive
 * the pieces with the new ranks and the next epoch, and workers receive the routes. Membership
 * itself is decided in membership.c, a stage in stage/. A released piece is always placed again
 * (RULES.md: K41, K42). */
#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/job/claim.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/kept.h"
#include "svc/coordinator/snapshot/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A regrouping. A job has one at most. The ranks and tensors do not change after the beginning, so
 * that all lanes receive the same ranks and tensors. */
struct regrouping {
    uint64_t id;
    uint32_t version, epoch;
    size_t pending; /* number of unanswered calls */
    bool has_failed;
    uint64_t have[TERMS_RANK_WORDS], gone[TERMS_RANK_WORDS];
    size_t count;
    uint32_t tensors[];
};

/* Context of a call. The regrouping or the job may have ended before the answer arrives. */
struct regroup_asked {
    uint64_t id;
    uint32_t job, lane;
};

void regrouping_end(struct job *job)
{
    free(job->ranks->regrouping);
    job->ranks->regrouping = NULL;
    job_unclaim(job, CLAIM_REGROUP);
}

/* --- plan --- */

static bool belongs(const struct tensor *tensor, const uint64_t *have, uint32_t rank)
{
    const struct session *session = tensor->job->sessions[rank];
    if (!ranks_have(have, rank) || !terms_have_rank(&tensor->terms, rank))
        return false;
    bool was_there = ranks_have(tensor->members, rank);
    if (!session || (was_there && session->entered <= tensor->grouped))
        return was_there;
    return session->entered > 0 && tensor_has_rank(tensor, rank);
}

/* Computes the ranks whose pushes should complete the tensor's rounds. Returns whether these ranks
 * differ from the current ranks. */
static bool wanted_members(const struct tensor *tensor, const uint64_t *have, uint64_t *ret_ranks)
{
    bool is_news = false;
    if (!tensor->job->terms->is_elastic) {
        const uint64_t *stage = tensor->job->ranks->stage;
        bool follows = members_follow_stage(tensor);
        memcpy(ret_ranks, follows ? stage : tensor->members, sizeof tensor->members);
        return memcmp(ret_ranks, tensor->members, sizeof tensor->members) != 0;
    }
    memset(ret_ranks, 0, sizeof tensor->members);
    for (uint32_t rank = 0; rank < tensor->job->workers; rank++) {
        const struct session *session = tensor->job->sessions[rank];
        if (!belongs(tensor, have, rank))
            continue;
        ranks_add(ret_ranks, rank);
        is_news |= session && session->entered > tensor->grouped;
    }
    return is_news || memcmp(ret_ranks, tensor->members, sizeof tensor->members) != 0;
}

static bool is_there(const struct tensor *tensor)
{
    tensor_each_piece (piece, tensor)
        if (piece->state != PIECE_READY || piece->lane->aggregator->state != AGGREGATOR_UP)
            return false;
    return true;
}

/* Returns whether rounds of the tensor can still complete. If a partial quorum needs more ranks
 * than remain, the tensor fails. */
static bool can_go_on(struct tensor *tensor, const uint64_t *ranks)
{
    char text[2 * ERR_TEXT_BYTES];
    struct terms terms = tensor->terms;
    memcpy(terms.ranks, ranks, sizeof terms.ranks);
    uint32_t left = terms_count(&terms, tensor->job->workers);
    if (terms.quorum != QUORUM_FIRST || terms.bound <= left)
        return true;
    snprintf(text, sizeof text,
             "tensor '%.255s' of job %.127s: its rounds need %u ranks, and %u are left; declare "
             "the tensor for fewer ranks, or start ranks again",
             tensor->name, tensor->job->name, terms.bound, left);
    tensor_fail(tensor, NULL, -EPIPE, text);
    return false;
}

/* Sets the ranks of a regrouping, with or without the late workers that may enter. `gone`: ranks
 * whose connections the lanes end. A late worker that connects only after its entry is in both
 * sets, because earlier connections of its rank belong to a former worker. */
static void plan_ranks(const struct job *job, bool has_late, struct regrouping *r)
{
    /* In a job with stages `gone` is empty, because idle ranks stay connected. */
    for (uint32_t rank = 0; job->terms->is_elastic && rank < job->workers; rank++) {
        bool is_member = members_have(job, rank), is_new = members_is_new(job, rank);
        if (is_member && (!is_new || (has_late && entering_may(job, rank))))
            ranks_add(r->have, rank);
        if (!is_member || (is_new && !entering_is_ahead(job, rank)))
            ranks_add(r->gone, rank);
    }
}

/* Plans a regrouping of all tensors that need a regrouping, with or without the late workers.
 * Returns NULL if no tensor needs a regrouping, if memory is missing, or if a piece is not ready on
 * a connected lane yet. */
static struct regrouping *plan(struct job *job, bool has_late)
{
    struct regrouping *r = calloc(1, sizeof *r + job->tensors_count * sizeof r->tensors[0]);
    uint64_t ranks[TERMS_RANK_WORDS];
    bool waits = !r;
    if (r)
        plan_ranks(job, has_late, r);
    for (size_t i = 0; r && i < job->tensors_count; i++) {
        struct tensor *tensor = job->tensors[i];
        if (tensor->failure || !wanted_members(tensor, r->have, ranks) || ranks_are_none(ranks) ||
            !can_go_on(tensor, ranks))
            continue;
        waits |= !is_there(tensor);
        r->tensors[r->count++] = tensor->id;
    }
    if (!waits && r->count > 0)
        return r;
    free(r);
    return NULL;
}

/* --- calls --- */

static struct regrouping *find(struct service *s, const struct regroup_asked *asked,
                               struct job **ret_job)
{
    struct job *job = jobs_find_id(s, asked->job);
    if (!job || !job->ranks->regrouping || job->ranks->regrouping->id != asked->id)
        return NULL;
    *ret_job = job;
    return job->ranks->regrouping;
}

static struct regroup_asked asked_of(const struct job *job, const struct lane *lane)
{
    return (struct regroup_asked){job->ranks->regrouping->id, job->id, lane->id};
}

typedef void (*visit_fn)(struct tensor *tensor, struct piece *piece, void *context);

static void each_piece(struct job *job, visit_fn visit, void *context)
{
    const struct regrouping *r = job->ranks->regrouping;
    for (size_t i = 0; i < r->count; i++) {
        struct tensor *tensor = jobs_tensor(job, r->tensors[i]);
        for (size_t k = 0; tensor && !tensor->failure && k < tensor->pieces_count; k++)
            visit(tensor, &tensor->pieces[k], context);
    }
}

/* The pieces of a message to one lane. */
struct gathering {
    const struct lane *lane;
    uint32_t *pieces;
    WIRE(PieceSpec) * specs;
    struct terms *terms;
    size_t count;
};

static void gather(struct tensor *tensor, struct piece *piece, void *context)
{
    struct gathering *g = context;
    if (piece->lane != g->lane)
        return;
    if (g->pieces)
        g->pieces[g->count] = piece->id;
    if (g->specs)
        g->specs[g->count] = telling_spec(tensor, piece, &g->terms[g->count]);
    g->count++;
}

/* --- the end --- */

static void thaw_all(struct job *job)
{
    for (size_t i = 0; i < job->shares_count; i++) {
        struct gathering g = {.lane = job->shares[i].lane};
        g.pieces = calloc(job->index->pieces_count + 1, sizeof *g.pieces);
        if (g.pieces)
            each_piece(job, gather, &g);
        if (g.count > 0)
            telling_thaw(job->shares[i].lane, job->id, g.pieces, g.count);
        free(g.pieces);
    }
}

/* Ends a regrouping whose new ranks are not stored yet. Lanes continue to serve the pieces with the
 * former ranks. A new attempt follows after RETRY_NS. */
static void give_up(struct job *job)
{
    struct service *s = job->service;
    log_warn("job %s: its lanes could not apply a change of workers; the coordinator tries again",
             job->name);
    thaw_all(job);
    regrouping_end(job);
    service_retry_later(s);
}

static bool is_of_epoch(const struct piece *piece, const void *epoch)
{
    return piece->epoch == *(const uint32_t *)epoch && piece->state == PIECE_READY;
}

/* Sends all new routes together, because a worker needs the routes of the whole tensor for its
 * messages about a piece (W15). */
static void finish(struct job *job)
{
    uint32_t epoch = job->ranks->regrouping->epoch, version = job->ranks->regrouping->version;
    struct service *s = job->service;
    regrouping_end(job);
    log_info("job %s: %u workers now take part in rounds, version %u, epoch %u", job->name,
             job->terms->is_elastic ? members_count(job) : ranks_count(job->ranks->stage), version,
             epoch);
    tensors_send_routes(job, NULL, is_of_epoch, &epoch);
    job->service->on->job->tensors_are_settled(job);
    entering_went_on(job);
    keeping_check(job);
    regrouping_check(job);
    s->on->job->ranks_have_changed(s);
}

/* --- the new ranks --- */

static void settle(struct tensor *tensor, struct piece *piece, void *context)
{
    const struct regroup_asked *asked = context;
    if (piece->lane && piece->lane->id == asked->lane && piece->state == PIECE_ASKED &&
        piece->epoch == tensor->job->ranks->regrouping->epoch) {
        piece->regroups = tensor->job->ranks->regrouping->has_failed;
        piece->state = piece->regroups ? PIECE_PLACED : PIECE_READY;
    }
}

static void regrouped(struct service *s, void *data, const envelope *reply, int code,
                      const char *text)
{
    struct regroup_asked *asked = data;
    struct job *job;
    struct regrouping *r = find(s, asked, &job);
    if (!r)
        return;
    r->has_failed =
        /* If the lane did not answer, its pieces are sent again, at the latest after the lane's
         * aggregator has connected again (K9). */
        !reply;
    each_piece(job, settle, asked);
    if (code == -ETIMEDOUT)
        service_retry_later(s);
    if (!reply && !call_went_unanswered(code))
        jobs_fail(job, NULL, code,
                  "lane %u did not apply a change of workers: %s; start the job again", asked->lane,
                  text);
    if (--r->pending == 0)
        finish(job);
}

static void ask_regroup(struct job *job, struct lane *lane)
{
    const struct regroup_asked asked = asked_of(job, lane);
    struct gathering g = {.lane = lane};
    each_piece(job, gather, &g);
    size_t count = g.count;
    if (count == 0)
        return;
    _cleanup_free_ WIRE(PieceSpec) *specs = calloc(count, sizeof *specs);
    _cleanup_free_ struct terms *terms = calloc(count, sizeof *terms);
    g = (struct gathering){.lane = lane, .specs = specs, .terms = terms};
    if (specs && terms) {
        each_piece(job, gather, &g);
        if (telling_ask(job, lane, job->ranks->regrouping->epoch, PLACE_REGROUPED, specs, count,
                        regrouped, &asked, sizeof asked) == 0) {
            job->ranks->regrouping->pending++;
            return;
        }
    }
    jobs_fail(job, NULL, -ENOMEM,
              "gradpool serve has no memory for the new set of ranks of job %.64s; raise its "
              "memory limit",
              job->name);
}

static void put_piece(struct tensor *tensor, struct piece *piece, void *context)
{
    const struct regrouping *r = tensor->job->ranks->regrouping;
    struct store_row row;
    piece_row(tensor, piece, &row);
    row.piece.epoch = r->epoch;
    store_put(tensor->job->service->store, &row);
}

static int keep(struct job *job, struct err *err)
{
    struct regrouping *r = job->ranks->regrouping;
    struct store *store = job->service->store;
    uint64_t ranks[TERMS_RANK_WORDS];
    struct store_row row;
    store_begin(store);
    jobs_row(job, &row);
    store_put(store, &row);
    for (size_t i = 0; i < r->count; i++) {
        const struct tensor *tensor = jobs_tensor(job, r->tensors[i]);
        if (!tensor)
            continue;
        (void)wanted_members(tensor, r->have, ranks);
        tensor_row(tensor, &row);
        row.tensor.members = (const uint8_t *)ranks;
        row.tensor.grouped = r->version;
        store_put(store, &row);
    }
    each_piece(job, put_piece, NULL);
    return store_commit(store, err);
}

static void switch_piece(struct tensor *tensor, struct piece *piece, void *context)
{
    piece->epoch = tensor->job->ranks->regrouping->epoch;
    piece->recovering = piece->regroups = true;
    piece->state = PIECE_ASKED;
}

static void switch_all(struct job *job)
{
    struct regrouping *r = job->ranks->regrouping;
    uint64_t ranks[TERMS_RANK_WORDS];
    each_piece(job, switch_piece, NULL);
    for (size_t i = 0; i < r->count; i++) {
        struct tensor *tensor = jobs_tensor(job, r->tensors[i]);
        if (!tensor)
            continue;
        (void)wanted_members(tensor, r->have, ranks);
        memcpy(tensor->members, ranks, sizeof tensor->members);
        tensor->grouped = r->version;
    }
}

/* Switches to the new ranks after all pieces are released. After the transaction, the regrouping
 * cannot be undone. */
static void regroup(struct job *job)
{
    struct regrouping *r = job->ranks->regrouping;
    struct err err;
    r->epoch = ++job->epoch;
    if (keep(job, &err) < 0) {
        log_error("%s", err.text);
        return give_up(job);
    }
    switch_all(job);
    /* This function counts as one more call, so that an early answer does not end the step before
     * all calls are sent. */
    r->pending = 1;
    for (size_t i = 0; i < job->shares_count && !job->failure; i++)
        ask_regroup(job, job->shares[i].lane);
    if (--r->pending == 0)
        finish(job);
}

/* --- the release --- */

/* Makes a regrouping before its switch fail, so that it begins again later: the aggregator may not
 * have received the releases, and its pieces may move to another lane without a release. */
void regrouping_aggregator_gone(const struct aggregator *a)
{
    list_for_each_entry (struct job, job, &a->service->jobs, link) {
        for (size_t i = 0; job->ranks->regrouping && i < job->shares_count; i++)
            if (job->ranks->regrouping->epoch == 0 && job->shares[i].lane->aggregator == a)
                job->ranks->regrouping->has_failed = true;
    }
}

static bool all_are_there(struct job *job)
{
    const struct regrouping *r = job->ranks->regrouping;
    for (size_t i = 0; i < r->count; i++) {
        const struct tensor *tensor = jobs_tensor(job, r->tensors[i]);
        if (tensor && !tensor->failure && !is_there(tensor))
            return false;
    }
    return true;
}

static void released(struct service *s, void *data, const envelope *reply, int code,
                     const char *text)
{
    const struct regroup_asked *asked = data;
    struct job *job;
    struct regrouping *r = find(s, asked, &job);
    if (!r)
        return;
    if (!reply)
        log_warn("job %s: lane %u did not release its pieces: %s; see the log of its aggregator",
                 job->name, asked->lane, text);
    r->has_failed |= !reply;
    if (--r->pending > 0)
        return;
    if (r->has_failed || !all_are_there(job))
        give_up(job);
    else
        regroup(job);
}

/* Sends one release. Returns 0, or -EAGAIN if the aggregator is not connected. */
static int send_release(struct job *job, struct lane *lane, const struct gathering *g,
                        const uint64_t *gone)
{
    if (lane->aggregator->state != AGGREGATOR_UP)
        return -EAGAIN;
    const struct regroup_asked asked = asked_of(job, lane);
    int error = lane_call(lane, released, &asked, sizeof asked, RELEASE_REQUEST, release_request,
                          .job_id = job->id, .pieces = g->pieces, .n_pieces = g->count,
                          .gone = {TERMS_RANK_WORDS * sizeof *gone, (uint8_t *)gone});
    job->ranks->regrouping->pending += error == 0;
    return error;
}

/* Sends a release to the lane. A lane without pieces to release receives one, too, because each
 * lane of the job needs the list of ranks that were lost or have left. */
static void ask_release(struct job *job, struct lane *lane)
{
    struct regrouping *r = job->ranks->regrouping;
    struct gathering g = {.lane = lane};
    if (lane->aggregator->state != AGGREGATOR_UP)
        return;
    g.pieces = calloc(job->index->pieces_count + 1, sizeof *g.pieces);
    if (g.pieces)
        each_piece(job, gather, &g);
    r->has_failed |= !g.pieces || send_release(job, lane, &g, r->gone) < 0;
    free(g.pieces);
}

/* Sends to lanes the ranks that were lost after the beginning of the regrouping. Otherwise pieces
 * would wait for these ranks, because a piece completes its open round before its release. The next
 * regrouping removes the ranks from the tensors. */
static void tell_of_more(struct job *job)
{
    const struct gathering nothing = {0};
    struct regrouping *r = job->ranks->regrouping;
    uint64_t more[TERMS_RANK_WORDS] = {0};
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (ranks_have(r->have, rank) && !ranks_have(r->gone, rank) && !members_have(job, rank)) {
            ranks_add(more, rank);
            ranks_add(r->gone, rank);
        }
    for (size_t i = 0; !ranks_are_none(more) && i < job->shares_count; i++)
        if (job->shares[i].pieces > 0)
            (void)send_release(job, job->shares[i].lane, &nothing, more);
}

static void let_go(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    if (!reply && code != -ECONNRESET && code != -ENOTCONN)
        log_warn("a lane did not close the connection of a rank that has gone: %s; see the log of "
                 "its aggregator",
                 text);
}

void regrouping_let_go(struct job *job, uint32_t rank)
{
    uint64_t gone[TERMS_RANK_WORDS] = {0};
    ranks_add(gone, rank);
    for (size_t i = 0; i < job->shares_count; i++) {
        struct lane *lane = job->shares[i].lane;
        if (job->shares[i].pieces > 0 && lane->aggregator->state == AGGREGATOR_UP)
            lane_call(lane, let_go, NULL, 0, RELEASE_REQUEST, release_request, .job_id = job->id,
                      .gone = {sizeof gone, (uint8_t *)gone});
    }
}

static void begin(struct job *job, struct regrouping *r)
{
    r->id = ++job->service->door->next_id;
    r->version = job->ranks->version;
    job->ranks->regrouping = r;
    job_claim(job, CLAIM_REGROUP);
    for (size_t i = 0; i < job->shares_count; i++)
        if (job->shares[i].pieces > 0)
            ask_release(job, job->shares[i].lane);
    if (r->pending == 0)
        give_up(job);
}

static bool somebody_goes(const struct job *job, const struct regrouping *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct tensor *tensor = jobs_tensor(job, r->tensors[i]);
        for (uint32_t rank = 0; rank < job->workers; rank++) {
            const struct session *session = job->sessions[rank];
            bool is_another = session && session->entered > tensor->grouped;
            if (ranks_have(tensor->members, rank) && (is_another || !ranks_have(r->have, rank)))
                return true;
        }
    }
    return false;
}

static bool somebody_stays(const struct job *job)
{
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (members_have(job, rank) && !members_is_new(job, rank))
            return true;
    return false;
}

void regrouping_check(struct job *job)
{
    bool has_changes = job->terms->is_elastic || job->ranks->stage;
    if (!has_changes || job->failure || job->service->phase != SERVICE_UP)
        return;
    if (job->ranks->regrouping && job->ranks->regrouping->epoch == 0)
        tell_of_more(job);
    if (job->ranks->regrouping)
        return;
    struct regrouping *r = plan(job, true);
    bool goes = r && somebody_goes(job, r);
    if (goes && entering_is_strict(job) && somebody_stays(job)) {
        free(r);
        r = plan(job, false);
    }
    if (!r)
        return entering_waits(job);
    if (!entering_may_begin(job, goes)) {
        free(r);
        return;
    }
    moving_worker_leaves(job); /* aborts a migration whose routes are not stored yet */
    saving_give_way(job, "its workers join or leave");
    if (!moving_is_busy(job))
        return begin(job, r);
    free(r);
}

void regrouping_check_all(struct service *s)
{
    list_for_each_safe (node, &s->jobs)
        regrouping_check(list_entry(node, struct job, link));
}
