/* Handles READY and QUERY records of workers. Every field is compared with the declaration that the
 * coordinator has sent. A wrong dtype fails the piece on every rank; the lane sends other errors to
 * this worker only. RULES.md: A1, A4. */
#include "svc/lane/hear/announce.h"

#include "svc/base/clock.h"
#include "svc/lane/chunk/stuck.h"
#include "svc/lane/job/table.h"
#include "svc/lane/piece/piece.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/takers.h"
#include "svc/lane/round/gradients.h"
#include "svc/lane/round/piece_failure.h"
#include "svc/lane/round/round.h"
#include "svc/lane/round/standing.h"
#include "svc/lane/state/parameters.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static bool extent_is_lent(struct worker *w, uint32_t region, uint64_t offset, uint64_t bytes)
{
    uint64_t lent = fabric_region_bytes(w->conn, region);
    return bytes == 0 || (offset <= lent && bytes <= lent - offset);
}

static uint64_t input_bytes_expected(const struct worker *w, const struct piece *p,
                                     const struct operation *operation,
                                     const struct record_ready *ready)
{
    bool gives = operation->inputs == INPUT_ALL ||
                 (operation->inputs == INPUT_ROOT && ready->root == w->number);
    bool lends = ready->standing != RECORD_IDLE && ready->standing != RECORD_ENTERS &&
                 ready->standing != RECORD_TAKES;
    return gives && lends ? piece_bytes(p, p->elements) : 0;
}

/* Checks that the worker lends `count` blocks of `bytes`. `stride`: distance between the beginnings
 * of two blocks. */
static bool blocks_are_lent(struct worker *w, uint32_t region, uint64_t offset, uint64_t bytes,
                            uint64_t stride, uint32_t count)
{
    uint64_t before;
    if (count > 1 && stride < bytes)
        return false;
    return !__builtin_mul_overflow(stride, count - 1, &before) &&
           !__builtin_add_overflow(offset, before, &offset) &&
           extent_is_lent(w, region, offset, bytes);
}

/* Checks that the input and the output have the expected length (else -EMSGSIZE), in memory that
 * the worker lends (else -EFAULT). */
static int check_extents(struct worker *w, const struct piece *p, const struct operation *operation,
                         const struct record_ready *ready)
{
    uint64_t bytes = piece_bytes(p, p->elements);
    const struct record_output *output = ready->outputs ? &ready->output[0] : NULL;
    uint32_t inputs = operation->restores            ? parameters_arrays(p)
                      : operation->splits            ? p->members
                      : quorum_follows(p, operation) ? p->job->sampling->gradients
                                                     : 1;
    uint32_t outputs = operation->saves      ? parameters_arrays(p)
                       : operation->collects ? p->members
                                             : 1;
    if (ready->input_bytes != input_bytes_expected(w, p, operation, ready))
        return -EMSGSIZE;
    if (output && (output->bytes != bytes || output->count != outputs))
        return -EMSGSIZE;
    if (!blocks_are_lent(w, ready->input_region, ready->input_offset, ready->input_bytes,
                         inputs > 1 ? ready->input_stride : 0, inputs))
        return -EFAULT;
    if (output &&
        !blocks_are_lent(w, output->region, output->offset, output->bytes, output->stride, outputs))
        return -EFAULT;
    return 0;
}

/* Stores a payload. A short payload is copied to the inbox. At most one longer payload stays in its
 * receive buffer, because another buffer must stay posted for the next message (W6). A newer
 * payload replaces an older payload that is not being summed. Returns true if the payload stays in
 * its buffer. */
static bool keep_payload(struct worker *w, struct announcement *a, const void *data,
                         const void *payload)
{
    if (a->operation->splits || a->operation->restores)
        /* the inline payload has only one of several blocks, so the input is read from lent
         * memory */
        return false;
    if (inbox_keep(w, a, payload,
                   piece_bytes(announcement_piece(a), announcement_piece(a)->elements)))
        return false;
    if (w->holding && announcement_piece(w->holding)->state != PIECE_COLLECTING)
        return false;
    worker_drop_payload(w);
    a->payload = payload;
    w->holding = a;
    w->held = data;
    return true;
}

static void fill(struct announcement *a, const struct operation *operation,
                 const struct record_ready *ready)
{
    a->operation = operation;
    a->root = ready->root;
    a->priority = ready->priority;
    a->weight = ready->weight;
    a->loss = ready->loss;
    a->round = ready->round;
    a->word = ready->word;
    a->standing = ready->standing;
    a->input_region = ready->input_region;
    a->input_offset = ready->input_offset;
    a->input_stride = ready->input_stride;
    a->output_region = ready->outputs > 0 ? ready->output[0].region : ANNOUNCEMENT_NO_OUTPUT;
    a->output_offset = ready->output[0].offset;
    a->output_stride = ready->output[0].stride;
}

/* Returns whether an announcement names the round of the job that the piece expects. If the lane
 * does not know this round, any round is accepted, and the first announcement sets the number. */
static bool suits_job_round(const struct piece *p, const struct record_ready *ready)
{
    bool is_of_job =
        ready->standing == RECORD_ANNOUNCE && quorum_follows(p, operation_find(ready->operation));
    if (!is_of_job || p->job_round == 0 || ready->round < p->round)
        return true;
    bool is_next = ready->round > p->round && quorum_follows(p, p->operation);
    return ready->root == (uint32_t)(p->job_round + is_next);
}

/* Returns whether the rank may request the result of this round, or, from the lane of the hidden
 * tensor, the number of the newest round. The lane of the hidden tensor refuses round 1, because no
 * rank gives up its gradient of round 1. */
static bool takes_is_acceptable(const struct piece *p, const struct rank *rank, uint64_t round)
{
    uint64_t first = p->takers ? 2 : 1, last = p->takers ? p->round : p->round + 1;
    return round > rank->clock && round >= first && round <= last && !rank->late &&
           &rank->said[round & 1] != rank->part;
}

/* Returns whether the rank may announce this round. A new owner does not know the open round until
 * all ranks have reported, and accepts any round. With a partial quorum a rank may announce a round
 * that closed long ago. In this case the round must be later than the clock of the rank, and the
 * rank must not wait for an answer. An announcement that a round in progress uses cannot be
 * replaced. */
static bool round_is_acceptable(const struct piece *p, const struct rank *rank,
                                const struct record_ready *ready)
{
    if (ready->standing == RECORD_ENTERS)
        return !rank->has_spoken || rank->said[0].round == 0;
    if ((p->is_installed || (rank->comes_back && p->round > 0)) && !rank->has_spoken)
        return standing_accepts(p, rank, ready);
    if (ready->standing == RECORD_KEEPS)
        return p->round == 0 && !rank->has_spoken && p->terms.quorum == QUORUM_ALL;
    if (p->round == 0)
        return true;
    if (ready->standing == RECORD_TAKES)
        return takes_is_acceptable(p, rank, ready->round);
    if (!suits_job_round(p, ready))
        return false;
    if (ready->standing != RECORD_ANNOUNCE)
        return (ready->round + 1 == p->round || ready->round == p->round) && !rank->late;
    if (quorum_is_loose(p))
        return ready->round == rank->clock + 1 && !rank->part;
    if (quorum_is_partial(p))
        return ready->round > rank->clock && ready->round <= p->round + 1 && !rank->late;
    return ready->round == p->round || ready->round == p->round + 1;
}

/* Sends an error. If the send queue is full, -ESTALE and errors of a failed job are dropped: the
 * worker receives the new route from the coordinator, or the failure of its job from this lane. Any
 * other error that cannot be sent closes the connection. */
__attribute__((format(printf, 4, 5))) static void
refuse(struct worker *w, const struct record_ready *ready, int code, const char *format, ...)
{
    /* a text that is too long for an ERROR record is shortened, and its end is marked */
    char text[2 * RECORD_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (ready->standing == RECORD_IDLE && code == -ESTALE)
        /* the record names no request, so the worker would apply the error to the whole job */
        return;
    int error = tell_error_now(w, ready->word, code, text);
    if (error == -EAGAIN && code != -ESTALE && !w->job->failure)
        fabric_disconnect(w->conn);
}

/* Returns whether the operation is allowed with this quorum. With a partial quorum, its result must
 * be correct without some of the inputs, because late ranks receive the result, too. A barrier has
 * no result, so a barrier is allowed only for an empty tensor. */
static bool suits_terms(const struct piece *p, const struct operation *operation)
{
    if (!parameters_suit(p, operation))
        return false;
    if (p->terms.quorum == QUORUM_ALL || (piece_follows(p) && p->terms.rule))
        return true;
    if (piece_follows(p))
        return operation->code == RECORD_BROADCAST || operation_is_reduction(operation);
    if (quorum_is_loose(p))
        return operation->code == RECORD_SUM;
    bool is_empty_barrier = operation->inputs == INPUT_NONE && p->elements == 0;
    return is_empty_barrier || operation_is_reduction(operation);
}

static bool root_is_sound(struct piece *p, const struct operation *operation, uint32_t root)
{
    return operation->inputs != INPUT_ROOT || (root < p->job->workers_count && piece_rank(p, root));
}

static bool gives_settings(const struct piece *p, const struct rank *rank,
                           const struct operation *operation)
{
    return operation->updates && (piece_follows(p) || rank == &p->ranks[0]);
}

static bool settings_are_sound(const struct piece *p, const struct rank *rank,
                               const struct operation *operation, const struct record_ready *ready,
                               char ret_text[RECORD_TEXT_BYTES])
{
    bool is_push = ready->standing != RECORD_IDLE && ready->standing != RECORD_ENTERS &&
                   ready->standing != RECORD_TAKES;
    if (!is_push || !gives_settings(p, rank, operation))
        return true;
    const struct parameters *q = p->parameters;
    bool has_own = rank->worker->has_settings || !p->job->is_elastic;
    if (!has_own && !q->is_told && ready->standing == RECORD_ANNOUNCE) {
        snprintf(
            ret_text, RECORD_TEXT_BYTES,
            "the update of rank %u has no settings, and there are no earlier ones; pass a rate",
            rank->worker->number);
        return false;
    }
    const char *wrong = update_wrong(p->terms.rule, has_own ? &rank->worker->settings : &q->told);
    if (wrong)
        snprintf(ret_text, RECORD_TEXT_BYTES,
                 "rule %s: the value of %s is out of range; see gp_settings",
                 update_name(p->terms.rule), wrong);
    return !wrong;
}

/* Checks an announcement before the round is changed. Returns false after an error was sent to the
 * worker. */
static bool check(struct worker *w, struct piece *p, const struct operation *operation,
                  const struct record_ready *ready)
{
    char text[RECORD_TEXT_BYTES];
    if (ready->epoch != p->epoch) {
        refuse(w, ready, -ESTALE, "the route has changed; wait for the new route");
        return false;
    }
    const struct rank *rank = piece_rank(p, w->number);
    if (!rank) {
        refuse(w, ready, -EINVAL,
               "the tensor was declared without this rank; push on the declared ranks only");
        return false;
    }
    if (operation && operation->inputs == INPUT_ROOT && p->job->is_elastic &&
        ready->root < p->job->workers_count && !piece_rank(p, ready->root)) {
        refuse(w, ready, -ECONNRESET,
               "the root, rank %u, is not in the job; name a rank of the job", ready->root);
        return false;
    }
    if (!operation || !root_is_sound(p, operation, ready->root)) {
        refuse(w, ready, -EOPNOTSUPP, "unknown operation or root; use one version of gradpool");
        return false;
    }
    if (!suits_terms(p, operation)) {
        refuse(w, ready, -EOPNOTSUPP,
               "%s is not defined for the declared quorum or rule; see gp_tensor_spec",
               operation->name);
        return false;
    }
    if (ready->dtype != p->dtype) { /* piece_fail() sends this error to every rank */
        piece_fail(
            p, -EINVAL, "tensor '%s': rank %u pushes %s, but declared %s; push the declared dtype",
            p->tensor, w->number, reduce_dtype_name(ready->dtype), reduce_dtype_name(p->dtype));
        refuse(w, ready, p->failure, "%s", p->failure_text);
        return false;
    }
    if (operation->divides && !reduce_divides(p->dtype)) {
        refuse(w, ready, -EINVAL, "%s is not defined for %s values; push a sum", operation->name,
               reduce_dtype_name(p->dtype));
        return false;
    }
    int error = check_extents(w, p, operation, ready);
    if (error < 0) {
        refuse(w, ready, error,
               "input or output is not %" PRIu64
               " elements of lent memory; use one version of gradpool",
               p->elements);
        return false;
    }
    if (!settings_are_sound(p, rank, operation, ready, text)) {
        refuse(w, ready, -EINVAL, "%s", text);
        return false;
    }
    if (!round_is_acceptable(p, rank, ready)) {
        refuse(w, ready, -EPROTO,
               "round %" PRIu64 " announced, round %" PRIu64 " is open; start the job again",
               ready->round, p->round);
        return false;
    }
    return true;
}

/* Returns whether the announcement repeats an earlier one. A repeated announcement has no effect in
 * any state of the round (W3), because the lane answers the first announcement. */
static bool is_repeated(const struct worker *w, struct piece *p, const struct record_ready *ready)
{
    struct rank *rank = piece_rank(p, w->number);
    if (!rank || ready->standing == RECORD_ENTERS)
        return false; /* a repeated ENTERS is answered again */
    const struct announcement *a = rank_said(rank, ready->round);
    return rank->has_spoken && a->round == ready->round && a->word == ready->word;
}

static void place_in_round(struct rank *rank, struct announcement *a)
{
    uint64_t open = quorum_round(rank->piece, rank);
    if (a->round == open)
        round_count(rank, a);
    else if (a->round < open)
        round_answer_late(rank, a);
}

/* Removes the pending COMMIT that a worker with an announcement of `round` no longer needs. In a
 * job that is not elastic, the COMMIT of the round before `round` is removed, because the result of
 * `round` implies this COMMIT (W4). In an elastic job a rank may leave before the result of
 * `round`, so the COMMIT of the round before `round` stays. The COMMIT of one round earlier is
 * removed: the worker has a later result, and the announcement needs the place of this COMMIT. */
static void withdraw_commit(struct rank *rank, uint64_t round)
{
    uint64_t former = round - (rank->piece->job->is_elastic ? 2 : 1);
    struct announcement *a = rank_said(rank, former);
    if (a->round == former && a->owes == TELL_COMMIT)
        list_remove(&a->tell_link);
}

/* Returns whether the lane may store a payload of the round. Only the open round and the next
 * round, which opens soon, may have a stored payload. A held piece opens no further round on this
 * lane. */
static bool may_keep_payload(const struct piece *p, const struct rank *rank, uint64_t round)
{
    return p->round > 0 && !p->is_held && round - quorum_round(p, rank) <= 1;
}

/* Records an announcement. Returns true if the payload stays in its receive buffer. */
static bool take(struct rank *rank, const struct operation *operation,
                 const struct record_ready *ready, const void *data, const void *payload)
{
    struct piece *p = rank->piece;
    struct worker *w = rank->worker;
    struct announcement *a = rank_said(rank, ready->round);
    bool is_taker = ready->standing == RECORD_TAKES;
    bool is_first = !rank->has_spoken, has_skipped = a->standing == RECORD_TAKES;
    bool is_new = a->round != ready->round || is_first || is_taker || has_skipped;
    bool keeps = false;
    if (ready->standing == RECORD_ENTERS) {
        standing_enter(rank, ready);
        return false;
    }
    if (is_new && ready->standing == RECORD_ANNOUNCE)
        withdraw_commit(rank, ready->round);
    if (is_new && !list_is_empty(&a->tell_link)) {
        refuse(w, ready, -EPROTO,
               "a round was announced before the commit of the last but one; use one version of "
               "gradpool");
        return false;
    }
    if (is_new) {
        announcement_drop_payload(w, a);
        fill(a, operation, ready);
        rank->gradients = ready->gradient;
    }
    if (is_new && p->parameters && !is_taker)
        parameters_hear(p, rank, operation, ready);
    if (is_new && p->takers &&
        (is_taker || ready->standing == RECORD_ANNOUNCE || ready->standing == RECORD_HOLDS))
        takers_hold_before(rank, ready->round);
    if (ready->standing == RECORD_KEEPS) {
        /* has_spoken stays false until the announcement of the next round, which follows (W5) */
        a->standing = RECORD_HOLDS;
        return false;
    }
    if (is_new)
        w->job->ending.stalled_ns += (uint64_t)ready->stalled * RECORD_STALL_NS;
    if (is_new && payload && may_keep_payload(p, rank, ready->round))
        keeps = keep_payload(w, a, data, payload);
    rank->has_spoken = true;
    p->spoken += is_first;
    if (p->round == 0 && !p->failure)
        standing_reported(rank);
    else if (is_new && p->failure && ready->standing != RECORD_IDLE)
        tell_error(w, a);
    else if (is_first && (p->is_installed || rank->comes_back))
        standing_welcome(rank);
    else if (is_taker)
        round_answer_late(rank, a);
    else if (is_new && ready->standing == RECORD_ANNOUNCE)
        place_in_round(rank, a);
    return keeps && a->payload;
}

/* Fails the piece, because a rank knows a loss from an earlier owner. The other ranks may not know
 * the loss, and would wait for this rank forever (L80). A report under another epoch is ignored,
 * because the new route follows. */
static void hear_failure(const struct worker *w, struct piece *p, const struct record_ready *ready)
{
    struct rank *rank = piece_rank(p, w->number);
    if (!rank || ready->epoch != p->epoch)
        return;
    p->spoken += !rank->has_spoken;
    rank->has_spoken = true;
    piece_fail(p, -EOWNERDEAD,
               "tensor '%s': rank %u knows of a result or state that was lost with an earlier "
               "lane; declare again",
               p->tensor, w->number);
}

/* Handles an announcement. Returns true if the payload stays in its receive buffer. */
static bool hear(struct worker *w, struct piece *p, const struct record_ready *ready,
                 const void *data, const void *payload)
{
    struct lane_job *job = w->job;
    const struct operation *operation = operation_find(ready->operation);
    if (job->failure) {
        refuse(w, ready, job->failure, "%s", job->failure_text);
    } else if (p && ready->standing == RECORD_FAILED) {
        hear_failure(w, p, ready);
    } else if (p && ready->standing == RECORD_TAKES && !p->takers &&
               !quorum_follows(p, operation)) {
        refuse(w, ready, -EOPNOTSUPP,
               "only jobs with backup workers can fetch results; use one version of gradpool");
    } else if (p && piece_follows(p) && ready->weight != RECORD_WEIGHT) {
        refuse(w, ready, -EOPNOTSUPP,
               "gradients have no weights in jobs with backup workers; leave gp_job_weigh() out");
    } else if (p && ready->gradient > p->job->sampling->gradients) {
        refuse(w, ready, -EPROTO,
               "gradient %u of a rank in a job with at most %u; use one version of gradpool",
               ready->gradient, p->job->sampling->gradients);
    } else if (p && piece_rank(p, w->number) &&
               gradients_are_more(piece_rank(p, w->number), ready)) {
        if (gradients_count(piece_rank(p, w->number), ready))
            round_go_on(p);
    } else if (p && is_repeated(w, p, ready)) {
        return false;
    } else if (!p) {
        refuse(w, ready, -ESTALE, "the piece has moved to another lane; wait for the new route");
    } else if (check(w, p, operation, ready)) {
        return take(piece_rank(p, w->number), operation, ready, data, payload);
    }
    return false;
}

/* Frees a dropped piece whose round failed before its first chunk: no transfer will free such a
 * piece. Errors that are still unsent are sent first, because they are stored in the announcements
 * of the piece. */
static void free_if_over(struct piece *p)
{
    if (!p->is_dropped || p->state != PIECE_COLLECTING)
        return;
    tell_flush(p->job->lane);
    piece_free(p);
}

bool announce(struct worker *w, const struct record_ready *ready, const void *data,
              const void *payload)
{
    struct piece *p = piece_find(w->job, ready->piece);
    bool keeps = hear(w, p, ready, data, payload);
    if (p)
        free_if_over(p);
    return keeps;
}

/* Returns whether the announcement is of `round` or a later round. A rank that has given up its
 * gradient of an open round of the job (TAKES) still has to announce the round. */
static bool has_announced(const struct piece *p, const struct announcement *a, uint64_t round)
{
    bool is_given_up = p->takers && a->standing == RECORD_TAKES;
    return a->round > round || (a->round == round && !is_given_up);
}

/* Returns whether other ranks wait for this rank. While the lane collects standings, the other
 * ranks wait for the standing of this rank. Afterwards they wait for this rank's announcement of
 * the round. `round` 0: a late worker asks about the open round. */
static bool is_missing(const struct piece *p, const struct rank *rank, uint64_t round)
{
    if (round == 0 && p->round == 0)
        return !rank->has_spoken;
    if (round == 0)
        round = p->round;
    return !has_announced(p, &rank->said[0], round) && !has_announced(p, &rank->said[1], round);
}

/* Adds to the answer the ranks whose memory delays the round. Called if every rank has announced
 * the round. */
static void name_stuck(const struct piece *p, const struct worker *asker,
                       struct record_missing *missing)
{
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < p->members; i++) {
        uint32_t number = p->ranks[i].worker->number;
        if (p->ranks[i].worker == asker || !stuck_holds(p, &p->ranks[i], now_ns))
            continue;
        ranks_add(missing->ranks, number);
        missing->have_pushed = true;
    }
}

void answer_query(struct worker *w, const struct record_query *query)
{
    struct record_missing missing = {.kind = RECORD_MISSING, .word = query->word};
    struct piece *p = piece_find(w->job, query->piece);
    if (!p)
        return;
    bool lacks_any = false;
    missing.round = p->round;
    for (uint32_t i = 0; i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        uint32_t number = rank->worker->number;
        if (rank->worker == w || !is_missing(p, rank, query->round))
            continue;
        ranks_add(missing.ranks, number);
        lacks_any = true;
    }
    if (!lacks_any)
        name_stuck(p, w, &missing);
    /* If the send queue is full, the answer is dropped, because the worker repeats its query. */
    (void)fabric_send(w->conn, &missing, sizeof missing, NULL, 0);
}
