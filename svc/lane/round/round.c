/* A round of a piece: its start, its commit, and answers to late ranks. quorum.c decides which
 * announcements a round uses. standing.c decides which round a new owner opens. RULES.md: A1, A2,
 * A14 to A16; svc/wire/README.md: W2 to W5, W12. */
#include "svc/lane/round/round.h"

#include "svc/lane/chunk/answers.h"
#include "svc/lane/chunk/transfer.h"
#include "svc/lane/piece/closing.h"
#include "svc/lane/piece/counts.h"
#include "svc/lane/piece/kept.h"
#include "svc/lane/piece/piece.h"
#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/recording.h"
#include "svc/lane/piece/replay.h"
#include "svc/lane/piece/rest.h"
#include "svc/lane/piece/takers.h"
#include "svc/lane/round/gradients.h"
#include "svc/lane/round/parts.h"
#include "svc/lane/round/piece_failure.h"
#include "svc/lane/round/standing.h"
#include "svc/lane/round/sums.h"
#include "svc/lane/state/replica.h"
#include "svc/lane/state/sample.h"
#include "svc/lane/turn/account.h"
#include "svc/lane/turn/policy.h"
#include "svc/lane/worker/serving.h"
#include "svc/wire/round_set.h"

#include <errno.h>
#include <inttypes.h>

/* Adds the piece to the queue: front layers (with larger priority) first, otherwise in order of
 * arrival. */
static void queue_by_priority(struct piece *p)
{
    struct list *at = &p->job->runnable;
    while (at->previous != &p->job->runnable &&
           list_entry(at->previous, struct piece, run_link)->priority < p->priority)
        at = at->previous;
    list_insert_before(at, &p->run_link);
}

static bool is_of_copy(const struct piece *p)
{
    return replica_is_fetched(p) || replica_is_filled(p);
}

static uint32_t steps_of(const struct piece *p)
{
    if (!is_of_copy(p) && (p->is_copy || p->elements == 0))
        return 1;
    if (is_of_copy(p) || p->operation->saves || p->operation->restores)
        return parameters_arrays(p); /* one step for each array */
    return operation_steps(p->operation, p->members);
}

/* Returns whether the round in progress has sampled gradients. */
static bool round_is_sampled(const struct piece *p)
{
    bool is_of_job = !is_of_copy(p) && quorum_follows(p, p->operation);
    return p->sampled && is_of_job && !p->is_copy;
}

static void start(struct piece *p)
{
    answers_make_room(p);
    replica_take(p);
    if (is_of_copy(p))
        parts_assign_holder(p);
    else
        parts_assign(p);
    if (p->parameters)
        parameters_start(p);
    if (round_is_sampled(p))
        sample_start(p, quorum_job_round(p, p->round));
    p->steps = steps_of(p);
    p->step = p->next_chunk = p->write_chunk = 0;
    p->next_element = 0;
    p->input_squares = p->result_squares = 0;
    p->state = PIECE_RUNNABLE;
    trace_step(p->job->trace, p->traced.at_ns, TRACE_READY);
    account_ready(p, !is_of_copy(p));
    p->job->due_bytes += piece_bytes(p, p->elements) * p->steps;
    queue_by_priority(p);
    job_wake(p->job);
}

/* Returns whether every rank has announced a round, except ranks that have left or are lost. A rank
 * offers its copy before its first announcement (W17), so the lane then knows all copies. */
static bool all_have_spoken(const struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        bool is_silent = rank->said[0].round == 0 && rank->said[1].round == 0;
        enum worker_state state = rank->worker->state;
        bool may_come = state != WORKER_LEFT && state != WORKER_LOST;
        if (is_silent && may_come)
            return false;
    }
    return true;
}

/* Queues the answers to late ranks whose round is closed on this lane. A rank that is late for the
 * open round gets its answer after the commit. */
static void line_up_late(struct piece *p)
{
    bool has_results = piece_follows(p) || kept_newest(p);
    bool may_be_served = has_results && p->round > 0 && !p->is_held && !p->failure;
    for (uint32_t i = 0; may_be_served && p->late > 0 && i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        if (rank->late && rank->late->round < p->round)
            serving_add(rank);
    }
}

/* Answers the reports of takers (W22), or sends them the failure. A lane that does not know the
 * open round yet sends the answers when the round is known. */
static void answer_landed(struct piece *p)
{
    struct rank *rank = NULL;
    if (p->failure)
        return piece_fail_takers(p);
    if (!p->takers || p->round == 0)
        return;
    while ((rank = takers_asking(p, rank))) {
        uint64_t round = RECORD_ROUND_NONE, landed = takers_reported(rank);
        bool is_due = replay_answers_report(rank, landed, &round) && recording_answers(rank);
        if (!is_due)
            continue;
        round = round != RECORD_ROUND_NONE ? takers_answer_with(rank, round) : takers_answer(rank);
        closing_began(rank);
        tell_closed(rank->worker, rank_newest(rank), round);
        if (round == landed)
            recording_begins(rank, round);
        recording_send(p);
    }
}

/* Answers late announcements of a piece without elements, such as the hidden tensor, with CLOSED
 * alone. A word for a stopped rank would delay the next round. A rank may have given up its
 * gradient of the open round (TAKES), because a lane that died had closed this round. The answer to
 * this rank names the round before the open round, and the rank announces the open round again. */
static void answer_late(struct piece *p)
{
    for (uint32_t i = 0; p->late > 0 && i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        struct announcement *a = rank->late;
        uint64_t round = p->round - 1;
        if (!a || !replay_answers_late(rank, &round) || !recording_answers(rank))
            continue;
        rank->late = NULL;
        p->late--;
        bool is_open = a->round > round;
        rank->clock = is_open ? round : a->round;
        tell_closed(rank->worker, a, round);
        if (is_open)
            closing_began(rank);
        else
            takers_begin(rank, round);
    }
}

/* Continues the piece. The lane writes the state to a worker's empty copy only after every rank has
 * announced a round, because a rank that arrives later might already have a copy, and would not
 * learn that this older copy is not used. An aggregator that the coordinator has named as replica
 * holder receives the state at once. */
void round_go_on(struct piece *p)
{
    recording_send(p);
    answer_landed(p);
    line_up_late(p);
    if (p->failure || p->state != PIECE_COLLECTING || p->round == 0 || p->is_held ||
        replica_is_awaited(p))
        return;
    if (replica_lacks(p, p->round - 1) && (p->parameters->holder || all_have_spoken(p)))
        return round_fill(p, p->round - 1);
    if (p->elements == 0 && !piece_follows(p))
        answer_late(p);
    bool is_known =
        /* a rank that only reports its standing names no operation */
        p->operation || p->is_copy;
    if (!is_known || !round_has_quorum(p))
        return;
    bool may_close = replay_allows(p) && closing_allows(p) && !takers_hold(p);
    if (may_close && !recording_is_behind(p))
        start(p);
    else
        gradients_go_on(p);
}

void round_landed(struct rank *rank, uint64_t round)
{
    takers_landed(rank, round);
    round_go_on(rank->piece);
}

void round_fail_stuck(struct piece *p)
{
    if (quorum_is_stuck(p))
        piece_fail(p, -EOWNERDEAD,
                   "tensor '%s': the result of round %" PRIu64
                   " was lost with its lane; declare again",
                   p->tensor, p->round - 1);
}

/* A rank may have been idle when the lane of its result died. If this rank is late, too, or another
 * rank leaves, the remaining ranks may be too few for any further round. The check is skipped in
 * three cases. A round in progress, or the copy of a result, supplies the result to late ranks. An
 * empty tensor has no result. With QUORUM_CHOSEN the next set may be unknown, and may need none of
 * the late ranks. */
void round_check_late(struct piece *p)
{
    bool makes_result = p->state != PIECE_COLLECTING || p->is_copy;
    if (quorum_next_is_known(p) && p->elements > 0 && !makes_result)
        round_fail_stuck(p);
}

void round_answer_late(struct rank *rank, struct announcement *a)
{
    announcement_drop_payload(rank->worker, a);
    if (piece_follows(rank->piece) && a->standing != RECORD_TAKES)
        return; /* the leader lane answers the announcement, and the rank then requests a result */
    rank->late = a;
    rank->piece->late++;
    if (a->standing == RECORD_TAKES)
        closing_interrupted(rank);
    else
        closing_late(rank);
    round_go_on(rank->piece);
    round_check_late(rank->piece);
}

/* ---- announcements ---- */

bool round_is_hopeless(struct piece *p, uint32_t *ret_left)
{
    return quorum_is_hopeless(p, ret_left) || replay_is_hopeless(p, ret_left);
}

/* Compares an announcement with the operation that the round's first announcement has set. A
 * different operation or root fails the piece, so no rank gets a result. */
static void agree(struct worker *w, struct piece *p, const struct announcement *a)
{
    if ((a->operation->updates || a->operation->saves) && !p->parameters->are_set) {
        piece_fail(p, -ENODATA,
                   "no parameters yet: undeclare '%s' on all ranks, declare and broadcast it",
                   p->tensor);
    } else if (!p->operation) {
        p->operation = a->operation;
        p->root = a->root;
    } else if (p->operation != a->operation) {
        piece_fail(p, -EINVAL,
                   "tensor '%s' round %" PRIu64
                   ": rank %u pushes %s, others %s; all ranks must push the same",
                   p->tensor, p->round, w->number, a->operation->name, p->operation->name);
    } else if (a->operation->inputs == INPUT_ROOT && p->root != a->root) {
        const char *role = a->operation->code == RECORD_SEND ? "sender" : "root";
        piece_fail(p, -EINVAL,
                   "tensor '%s' round %" PRIu64
                   ": rank %u gives %s %u, the others %u; all ranks must give the same",
                   p->tensor, p->round, w->number, role, a->root, p->root);
    }
    if (a->priority > p->priority)
        p->priority = a->priority;
}

void round_count(struct rank *rank, struct announcement *a)
{
    struct piece *p = rank->piece;
    /* a round in progress has all its inputs, so this round completes even if ranks have left */
    bool may_fail = p->job->has_left && p->state == PIECE_COLLECTING;
    uint32_t left;
    if (p->announced++ == 0)
        trace_step(p->job->trace, p->traced.at_ns, TRACE_HEARD);
    p->traced.last = (uint16_t)rank->worker->number;
    quorum_learn(p, a->operation, a->root);
    closing_arrived(rank, rank->gradients);
    gradients_repeat_request(rank, a);
    if (p->failure)
        tell_error(rank->worker, a);
    else if (may_fail && round_is_hopeless(p, &left))
        piece_fail(p, -EPIPE, "rank %u has left job '%s'; leave after the same round on all ranks",
                   left, p->job->name);
    else
        agree(rank->worker, p, a);
    round_go_on(p);
}

/* ---- commit ---- */

void round_count_early(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        struct announcement *a = quorum_waiting(p, &p->ranks[i]);
        if (a && a->standing == RECORD_ANNOUNCE)
            round_count(&p->ranks[i], a);
    }
}

/* Returns whether the rank needs the COMMIT. If the rank has announced the next round, the result
 * of that round implies this commit (W4). In an elastic job the rank may leave before that result,
 * and it reports only committed rounds (A44). */
static bool needs_commit(struct rank *rank, const struct announcement *a)
{
    const struct announcement *next = rank_said(rank, a->round + 1);
    bool has_moved_on = next->round == a->round + 1 && next->standing == RECORD_ANNOUNCE;
    return !has_moved_on || rank->piece->job->is_elastic;
}

static void tell_part(struct piece *p, struct rank *rank)
{
    struct announcement *a = rank->part;
    announcement_drop_payload(rank->worker, a);
    rank->clock = a->round;
    rank->part = NULL;
    if (piece_leads(p))
        tell_chosen(rank->worker, a);
    else if (needs_commit(rank, a))
        tell_commit(rank->worker, a);
}

/* Marks a rank as late if it announced the closed round and took no part. If the rank still waits
 * for the answer to an earlier announcement, the rank has broken the protocol, and only the earlier
 * announcement is answered. */
static void find_late(struct piece *p, struct rank *rank)
{
    struct announcement *a = quorum_waiting(p, rank);
    if (a && !rank->late && quorum_is_partial(p) && !piece_follows(p)) {
        rank->late = a;
        p->late++;
    }
    if (a)
        announcement_drop_payload(rank->worker, a);
}

int round_choose(struct lane_job *job, const struct record_chosen *chosen)
{
    int error = quorum_choose(job, chosen);
    if (error <= 0)
        return error;
    list_for_each_safe_entry (struct piece, p, &job->pieces, link)
        if (p->terms.quorum == QUORUM_CHOSEN && quorum_job_round(p, p->round) == chosen->round) {
            round_go_on(p);
            round_check_late(p);
        }
    return 0;
}

static void lead(struct piece *p)
{
    struct record_chosen chosen = {0};
    gradients_fill_set(p, &chosen);
    bool has_all = round_set_ranks(&chosen) == p->members;
    chosen.reason = has_all ? RECORD_REASON_ALL : RECORD_REASON_GAIN;
    if (closing_is_here(p) && chosen.reason != RECORD_REASON_ALL)
        chosen.reason = closing_reason(p);
    if (replay_decides(p))
        chosen.reason = RECORD_REASON_REPLAY;
    chosen.epoch = p->epoch;
    /* an error means that a worker has sent another set; this set stays valid, and only this job is
     * affected */
    (void)round_choose(p->job, &chosen);
    takers_closed(p);
    closing_closed(p);
    counts_closed(p, chosen.reason);
    for (uint32_t i = 0; p->takers && i < p->members; i++) {
        bool is_sent = recording_is_here(p) && p->ranks[i].worker->number == 0;
        if (!p->ranks[i].part && !is_sent)
            tell_passed(p->ranks[i].worker, p->round);
        else if (!quorum_was_chosen(p, &p->ranks[i], p->round))
            /* the known set lacks this rank, so the rank receives the results as a taker */
            takers_begin(&p->ranks[i], p->round);
    }
}

static void close_round(struct piece *p)
{
    sums_add(p);
    account_done(p);
    tracing_note(p);
    if (p->parameters) {
        parameters_commit(p);
        replica_committed(p);
    }
    if (p->sampled && quorum_follows(p, p->operation))
        sample_commit(p, quorum_job_round(p, p->round), !p->is_copy);
    if (p->parameters && p->is_copy)
        /* sends BACKED, because a new holder does not know this round yet */
        replica_tell(p, p->round);
    for (uint32_t i = 0; i < p->members; i++) {
        if (!p->ranks[i].part)
            find_late(p, &p->ranks[i]);
    }
    if (piece_leads(p))
        lead(p);
    if (p->kept && p->kept_from == 0)
        p->kept_from = p->round;
    p->is_copy = false;
}

static void open_round(struct piece *p)
{
    p->round++;
    if (p->job_round > 0 && quorum_follows(p, p->operation))
        p->job_round++;
    p->announced = 0;
    p->operation = NULL;
    p->priority = 0;
    p->state = PIECE_COLLECTING;
    round_count_early(p);
}

void round_fetch(struct piece *p, uint64_t round)
{
    replica_fetch(p, round);
    start(p);
}

void round_fill(struct piece *p, uint64_t round)
{
    replica_fill(p, round);
    start(p);
}

/* Fails the piece if the open round has become impossible, because a rank has left while the piece
 * was busy. Otherwise the piece continues. */
static void go_on_or_fail(struct piece *p)
{
    uint32_t left;
    bool waits = p->announced > 0 && !p->failure;
    if (waits && p->job->has_left && round_is_hopeless(p, &left))
        piece_fail(p, -EPIPE, "rank %u has left job '%s'; leave after the same round on all ranks",
                   left, p->job->name);
    else
        round_go_on(p);
}

/* Continues after the state was written to a copy. If the open round is unknown (round 0), the lane
 * collects standings; otherwise the open round continues. */
static void end_fill(struct piece *p)
{
    uint64_t round = p->parameters->filled;
    replica_filled(p);
    p->state = PIECE_COLLECTING;
    release_tell(p->job->lane);
    if (p->is_dropped)
        return piece_free(p);
    if (p->round == 0)
        round_settle(p, round);
    else
        go_on_or_fail(p);
    if (p->is_held && p->state == PIECE_COLLECTING)
        piece_rest(p);
}

/* Decides which round is open after the state was read from its copy. */
static void end_fetch(struct piece *p)
{
    uint64_t round = p->parameters->fetched;
    replica_fetched(p);
    p->state = PIECE_COLLECTING;
    if (p->is_dropped)
        return piece_free(p);
    standing_fetched(p, round);
    round_settle(p, round);
    if (p->is_held && p->state == PIECE_COLLECTING)
        piece_rest(p);
}

static void commit(struct piece *p)
{
    if (replica_is_fetched(p))
        return end_fetch(p);
    if (replica_is_filled(p))
        return end_fill(p);
    close_round(p);
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].part)
            tell_part(p, &p->ranks[i]);
    }
    if (p->is_dropped) {
        piece_free(p);
        return;
    }
    open_round(p);
    if (p->is_held)
        piece_rest(p);
    else
        round_go_on(p);
    release_note(p->job);
}

void round_take_up(struct piece *p)
{
    bool all_hold = p->is_copy && round_has_quorum(p);
    if ((p->is_copy && p->kept) || (all_hold && replica_is_kept(p))) {
        start(p); /* late ranks need the result on this lane, or the replica needs the state */
    } else if (all_hold) {
        parts_assign(p);
        commit(p); /* all ranks have the result */
    } else {
        round_count_early(p);
        /* the lane may have the result for late ranks, and then sends this result (A45) */
        round_go_on(p);
    }
}

/* Begins an interrupted round again. Announcements of the first attempt still count. */
static void begin_again(struct piece *p)
{
    p->is_interrupted = false;
    p->is_copy = p->was_copy;
    if (p->round == 0)
        round_recover(p);
    else
        go_on_or_fail(p);
}

static void abandon(struct piece *p)
{
    round_rest(p);
    if (p->is_dropped)
        piece_free(p);
    else if (p->is_interrupted)
        begin_again(p);
}

void round_chunks_are_over(struct piece *p, bool is_given_up)
{
    if (p->failure || is_given_up)
        abandon(p);
    else if (p->state == PIECE_FINISHING)
        commit(p);
}

void round_give_up(struct piece *p)
{
    struct lane_job *job = p->job;
    answers_end(p);
    kept_drop_oldest(p);
    if (quorum_is_loose(p))
        piece_fail(
            p, -EOWNERDEAD,
            "tensor '%s': a rank was lost while its push was added; declare the tensor again",
            p->tensor);
    transfer_give_up(p);
    if (p->chunks_active == 0)
        abandon(p);
    job_wake(job); /* other pieces of the job may have waited for the freed transfers */
}

void round_interrupt(struct piece *p)
{
    p->is_interrupted = true;
    p->was_copy = p->is_copy;
    round_give_up(p);
}
