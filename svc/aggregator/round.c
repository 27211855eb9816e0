/* A round of a piece: what is read and written, when it is committed, what the late get, and how a
 * new owner finds out where a round stood. Whose announcements it takes is quorum.c's.
 * README: A1, A2, A14 to A16; svc/wire/README.md: W2 to W5, W12. */
#include "svc/aggregator/account.h"
#include "svc/aggregator/parameters.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

static bool is_source(const struct piece *p, const struct rank *rank)
{
    if (p->elements == 0 || p->is_answer)
        return false;
    if (p->is_copy)
        return rank->part->standing == RECORD_HOLDS && p->sources == 0;
    return p->operation->inputs == INPUT_ALL ||
           (p->operation->inputs == INPUT_ROOT && rank->worker->number == p->root);
}

static struct announcement *part_of(struct piece *p, struct rank *rank)
{
    if (p->is_answer)
        return rank->late;
    bool takes = p->is_copy ? quorum_waiting(p, rank) != NULL : quorum_takes(p, rank);
    return takes ? rank_said(rank, quorum_round(p, rank)) : NULL;
}

/* All parts first: who takes part may depend on the others' clocks and parts. */
static void assign_parts(struct piece *p)
{
    struct announcement *a;
    p->sources = 0;
    for (uint32_t i = 0; i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        a = rank->part = part_of(p, rank);
        rank->is_source = a && is_source(p, rank);
        rank->gets_word = a && a->standing == RECORD_ANNOUNCE;
        rank->is_target = p->elements > 0 && rank->gets_word && a->has_output;
        p->sources += rank->is_source;
    }
}

/* Front layers first (larger priority), else in order of arrival. */
static void queue_by_priority(struct piece *p)
{
    struct list *at = &p->job->runnable;
    while (at->previous != &p->job->runnable &&
           list_entry(at->previous, struct piece, run_link)->priority < p->priority)
        at = at->previous;
    list_insert_before(at, &p->run_link);
}

static void start(struct piece *p)
{
    assign_parts(p);
    bool is_plain = p->is_copy || p->is_answer || p->elements == 0;
    p->steps = is_plain ? 1 : operation_steps(p->operation, p->members);
    p->step = p->next_chunk = p->write_chunk = 0;
    p->next_element = 0;
    p->input_squares = p->result_squares = 0;
    p->state = PIECE_RUNNABLE;
    account_ready(p, !p->is_answer);
    p->job->due_bytes += piece_bytes(p, p->elements) * p->steps;
    queue_by_priority(p);
    job_wake(p->job);
}

void round_go_on(struct piece *p)
{
    if (p->failure || p->state != PIECE_COLLECTING || p->round == 0)
        return;
    p->is_answer = p->late > 0 && (p->has_kept || p->elements == 0);
    bool is_known =
        p->operation || p->is_copy; /* who only says where it stands announces nothing */
    if (p->is_answer || (is_known && round_has_quorum(p)))
        start(p);
}

void round_answer_late(struct rank *rank, struct announcement *a)
{
    announcement_drop_payload(rank->worker, a);
    rank->late = a;
    rank->piece->late++;
    round_go_on(rank->piece);
}

/* ---- commit ---- */

/* Announcements of the round that opens may be here already: a fast worker laps a slow one (W3). */
static void count_early(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        struct announcement *a = quorum_waiting(p, &p->ranks[i]);
        if (a && a->standing == RECORD_ANNOUNCE)
            count_in(&p->ranks[i], a);
    }
}

static void account(struct piece *p)
{
    struct lane_job *job = p->job;
    uint64_t bytes = piece_bytes(p, p->elements) * p->sources;
    if (p->operation && p->operation->splits)
        bytes *= p->members;
    job->pushed_bytes += bytes;
    job->lane->pushed_bytes += bytes;
    job->rounds++;
    job->lane->rounds++;
}

static void add_losses(struct lane_squares *squares, const struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        if (!rank->part || !rank->is_source || isnan(rank->part->loss))
            continue;
        squares->losses++;
        squares->loss_sum += (double)rank->part->loss;
    }
}

/* Pieces of an older round than the newest that is measured come too late to be added. */
static void add_squares(struct piece *p)
{
    struct lane_squares *squares = &p->job->squares;
    if (!p->terms.measures || p->is_copy || p->round < squares->round)
        return;
    if (p->round > squares->round)
        *squares = (struct lane_squares){.round = p->round};
    squares->inputs = p->sources;
    squares->pieces++;
    squares->input_squares += p->input_squares;
    squares->result_squares += p->result_squares;
    add_losses(squares, p);
}

/* Who has announced the next round without COMMIT is told by that round's result (W4). */
static bool has_moved_on(struct rank *rank, const struct announcement *a)
{
    const struct announcement *next = rank_said(rank, a->round + 1);
    return next->round == a->round + 1 && next->standing == RECORD_ANNOUNCE;
}

static void tell_part(struct piece *p, struct rank *rank)
{
    struct announcement *a = rank->part;
    announcement_drop_payload(rank->worker, a);
    rank->clock = a->round;
    rank->part = NULL;
    if (p->is_answer) {
        rank->late = NULL;
        p->late--;
        tell_closed(rank->worker, a, p->round - 1);
    } else if (p->terms.leads) {
        tell_chosen(rank->worker, a);
    } else if (!has_moved_on(rank, a)) {
        tell_commit(rank->worker, a);
    }
}

/* Who announced the round that is now closed and took no part. */
static void find_late(struct piece *p, struct rank *rank)
{
    struct announcement *a = quorum_waiting(p, rank);
    if (a && quorum_is_partial(p)) {
        rank->late = a;
        p->late++;
    }
    if (a)
        announcement_drop_payload(rank->worker, a);
}

static void lead(struct piece *p)
{
    struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = p->round};
    for (uint32_t i = 0; i < p->members; i++) {
        uint32_t number = p->ranks[i].worker->number;
        if (p->ranks[i].part)
            chosen.ranks[number / 64] |= UINT64_C(1) << (number % 64);
    }
    (void)quorum_choose(p->job, &chosen); /* what a worker said before us is its job's own lie */
}

static void close_round(struct piece *p)
{
    account(p);
    add_squares(p);
    if (p->parameters)
        parameters_commit(p);
    for (uint32_t i = 0; i < p->members; i++) {
        if (!p->ranks[i].part)
            find_late(p, &p->ranks[i]);
    }
    if (p->terms.leads)
        lead(p);
    p->has_kept = p->kept != NULL;
    p->is_copy = false;
}

static void open_round(struct piece *p)
{
    p->round++;
    p->announced = 0;
    p->operation = NULL;
    p->priority = 0;
    p->state = PIECE_COLLECTING;
    count_early(p);
}

void round_commit(struct piece *p)
{
    bool is_answer = p->is_answer;
    if (!is_answer)
        close_round(p);
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].part)
            tell_part(p, &p->ranks[i]);
    }
    if (p->is_dropped) {
        piece_free(p);
        return;
    }
    p->is_answer = false;
    p->state = PIECE_COLLECTING;
    if (!is_answer)
        open_round(p);
    round_go_on(p);
}

void round_rest(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        if (rank->part && rank->worker->holding == rank->part)
            worker_drop_payload(rank->worker);
        rank->part = NULL;
    }
    p->is_answer = p->is_copy = false;
    p->state = PIECE_COLLECTING;
}

void round_abandon(struct piece *p)
{
    round_rest(p);
    if (p->is_dropped)
        piece_free(p);
}

/* ---- a new owner ---- */

/* The two announcements of a rank that are kept: of the same, where it made one only. */
static struct announcement *earliest_of(struct rank *rank)
{
    struct announcement *a = &rank->said[0], *b = &rank->said[1];
    if (a->round == 0 || b->round == 0)
        return a->round > b->round ? a : b;
    return a->round < b->round ? a : b;
}

static struct announcement *newest_of(struct rank *rank)
{
    return rank->said[0].round > rank->said[1].round ? &rank->said[0] : &rank->said[1];
}

/* The last round that it knows to be committed. */
static uint64_t committed_by(struct rank *rank)
{
    const struct announcement *a = earliest_of(rank);
    return a->standing == RECORD_IDLE || a->round == 0 ? a->round : a->round - 1;
}

static uint64_t last_committed(struct piece *p)
{
    uint64_t committed = 0;
    for (uint32_t i = 0; i < p->members; i++) {
        uint64_t here = committed_by(&p->ranks[i]);
        if (here > committed)
            committed = here;
    }
    return committed;
}

/* It says to be in a round that is committed. Where all take part its landing area has held the
 * result since before anybody was told so (W4), even when the word of it was lost with the lane;
 * else only if it says so, and the others wait for the next result (W12). */
static void catch_up(struct piece *p, struct rank *rank, struct announcement *a)
{
    if (quorum_is_partial(p) && a->standing == RECORD_HOLDS) {
        rank->clock = a->round;
        tell_closed(rank->worker, a, p->round - 1);
    } else if (quorum_is_partial(p)) {
        rank->late = a;
        p->late++;
    } else if (a->round + 1 == p->round) {
        tell_commit(rank->worker, a);
    } else {
        piece_fail(p, -EPROTO,
                   "tensor '%s': rank %u is in round %" PRIu64 ", another has committed %" PRIu64,
                   p->tensor, rank->worker->number, a->round, p->round - 1);
    }
}

/* A result that is the same for all can be copied from whoever holds it, if the lane itself has no
 * need of the round. */
static bool is_common(const struct piece *p, const struct announcement *a)
{
    return !a->operation->splits && !a->operation->collects && !p->parameters;
}

/* One rank's place in the round that opens. Returns whether it holds that round's result, and the
 * others can have it from there. */
static bool settle_rank(struct piece *p, struct rank *rank)
{
    struct announcement *a = newest_of(rank);
    if (a->round > p->round)
        a = earliest_of(rank); /* it has announced one more */
    rank->clock = committed_by(rank);
    if (a->standing == RECORD_IDLE || a->round == 0)
        return false;
    if (a->round < p->round)
        catch_up(p, rank, a);
    if (a->round < p->round || a->standing != RECORD_HOLDS)
        return false;
    if (!is_common(p, a)) {
        count_in(rank, a); /* its input is lent still: the round is done again for the others */
        return false;
    }
    if (a->has_output) { /* a broadcast's root has no landing area: its input is the result */
        a->input_region = a->output_region;
        a->input_offset = a->output_offset;
    }
    p->announced++;
    return true;
}

/* Who has left without a word never tells where it stood. */
static uint32_t silent_leavers(const struct piece *p, uint32_t *ret_left)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].worker->state != WORKER_LEFT || p->ranks[i].has_spoken)
            continue;
        *ret_left = p->ranks[i].worker->number;
        count++;
    }
    return count;
}

/* What a lost lane takes with it: running sums and moments lie in no worker's memory. */
static const char *find_loss(const struct piece *p)
{
    if (p->round <= 1)
        return NULL;
    if (p->parameters)
        return "its parameters were lost with its lane; declare it anew and broadcast them";
    return quorum_is_loose(p) ? "its running sum was lost with its lane" : NULL;
}

/* Open round = one after the last that anybody knows to be committed. If somebody holds its result,
 * that is what the rest get, never a second sum (W5). */
void round_recover(struct piece *p)
{
    uint32_t left = 0, silent = silent_leavers(p, &left);
    if (silent > 0 && p->terms.quorum == QUORUM_ALL)
        piece_fail(p, -EPIPE, "rank %u has left job '%s'", left, p->job->name);
    if (p->spoken + silent < p->members)
        return;
    p->round = last_committed(p) + 1;
    const char *loss = find_loss(p);
    if (loss)
        piece_fail(p, -EOWNERDEAD, "tensor '%s': %s", p->tensor, loss);
    for (uint32_t i = 0; i < p->members && !p->failure; i++)
        p->is_copy |= settle_rank(p, &p->ranks[i]);
    if (p->failure || p->state != PIECE_COLLECTING)
        return; /* ranks disagree about the operation, or the last of them has set it off */
    if (p->is_copy && p->kept) {
        start(p); /* the late need it here */
    } else if (p->is_copy && round_has_quorum(p)) {
        assign_parts(p);
        round_commit(p); /* all hold the result */
    } else {
        count_early(p);
    }
}
