/* The standing of a piece at a new owner: computed from the reports of its workers (W5), or
 * supplied by the former owner. Decides which round is open, and how each rank's first announcement
 * is answered. Sums nothing. RULES.md: A27, A28; svc/wire/README.md: W5, W12. */
#include "svc/lane/round/standing.h"

#include "svc/lane/piece/quorum.h"
#include "svc/lane/piece/takers.h"
#include "svc/lane/round/holder.h"
#include "svc/lane/round/piece_failure.h"
#include "svc/lane/round/round.h"
#include "svc/lane/state/replica.h"

#include <errno.h>
#include <inttypes.h>

/* Returns the earlier of a rank's two announcements. If the rank has only one announcement, both
 * this function and rank_newest() return this announcement. */
static struct announcement *earliest_of(struct rank *rank)
{
    struct announcement *a = &rank->said[0], *b = &rank->said[1];
    if (a->round == 0 || b->round == 0)
        return a->round > b->round ? a : b;
    return a->round < b->round ? a : b;
}

/* Returns whether a rank that has left had the COMMIT of `round`. All ranks then have the result,
 * though some may not have received their COMMIT (W4). */
static bool is_told_by_leaver(const struct piece *p, uint64_t round)
{
    return p->terms.quorum == QUORUM_ALL && p->left_round == round;
}

/* Returns the newest round that is committed according to the announcements of the rank. The rank
 * may lack the COMMITs of both announced rounds, while a rank that has left had the COMMIT of the
 * later round. In this case the later round counts as committed. */
static uint64_t committed_by(struct rank *rank)
{
    const struct announcement *a = earliest_of(rank), *newest = rank_newest(rank);
    if (newest->round > 0 && is_told_by_leaver(rank->piece, newest->round))
        return newest->round;
    if (a->standing == RECORD_IDLE || a->round == 0 || is_told_by_leaver(rank->piece, a->round))
        return a->round;
    return a->round - 1;
}

static bool somebody_enters(const struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].is_entering)
            return true;
    }
    return false;
}

/* Returns whether a copy proves that `round` was committed. The former lane may have died before
 * any COMMIT arrived. A copy that begins with the round shows that all ranks have the result (W4).
 * The proof is ignored in two cases. If the state is on this lane, a round of the former set of
 * ranks may have to be undone (A44). If a rank enters, the rank must enter after the same round on
 * all pieces. */
static bool is_told_by_copy(struct piece *p, uint64_t round)
{
    bool is_lost = p->parameters && !p->parameters->are_set;
    return is_lost && round > 1 && p->terms.quorum == QUORUM_ALL && !somebody_enters(p) &&
           replica_begins_with(p, round);
}

static uint64_t last_committed(struct piece *p)
{
    uint64_t committed = 0;
    for (uint32_t i = 0; i < p->members; i++) {
        uint64_t here = committed_by(&p->ranks[i]);
        if (here > committed)
            committed = here;
    }
    return committed + is_told_by_copy(p, committed + 1);
}

/* Returns whether a set of the first n gradients always has all ranks. In an elastic job the last
 * round may have had more ranks, so the answer is false. */
static bool takes_all(const struct piece *p)
{
    return p->terms.quorum == QUORUM_FIRST && p->terms.bound == p->members && !p->job->is_elastic;
}

/* Sends COMMIT of the round again to a rank of the set. The rank may have announced the round to a
 * lane or connection that is gone, so it may not know the set. The leader lane therefore sends the
 * set before the COMMIT (W13). */
static void commit_again(struct rank *rank, struct announcement *a)
{
    if (piece_leads(rank->piece))
        tell_chosen(rank->worker, a);
    else
        tell_commit(rank->worker, a);
}

/* Sends COMMIT of a round whose result this rank still reports together with its announcement of
 * the next round. The round before the open round is committed. The rank may leave before the open
 * round ends, and it reports only committed rounds (A44). */
static void commit_kept(struct rank *rank)
{
    const struct piece *p = rank->piece;
    struct announcement *a = earliest_of(rank);
    if (p->job->is_elastic && a->standing == RECORD_HOLDS && a->round + 1 == p->round)
        tell_commit(rank->worker, a);
}

/* Marks a rank for an answer after the standing is settled. A piece whose rounds use the job's sets
 * answers takers only; the leader lane answers all other ranks. */
static void wait_for_answer(struct rank *rank, struct announcement *a)
{
    if (piece_follows(rank->piece) && a->standing != RECORD_TAKES)
        return;
    rank->late = a;
    rank->piece->late++;
}

/* Answers a rank that announces a committed round of a piece whose rounds use the job's sets. The
 * leader lane decides about later results, so this answer names no later round. If the round has no
 * set, all ranks took part. */
static void catch_up_follower(struct piece *p, struct rank *rank, struct announcement *a)
{
    bool is_of_all = !quorum_follows(p, a->operation);
    if (a->standing == RECORD_HOLDS || is_of_all || quorum_was_chosen(p, rank, a->round))
        tell_commit(rank->worker, a);
    else
        wait_for_answer(rank, a);
}

/* Answers a rank that announces a committed round. With full quorum the rank's landing area has the
 * result even if the COMMIT was lost with the lane, because results land before any COMMIT (W4).
 * With a partial quorum the landing area counts only if the rank reports the result or is in the
 * known set of the round; all other ranks wait for the next result (W12). A rank that reports a
 * result has the result of its own round, because late ranks get no completion word. */
static void catch_up(struct piece *p, struct rank *rank, struct announcement *a)
{
    if (p->failure && p->terms.quorum != QUORUM_ALL) {
        tell_error(rank->worker, a); /* no later result will come */
    } else if (piece_follows(p)) {
        catch_up_follower(p, rank, a);
    } else if (p->takers && quorum_was_chosen(p, rank, a->round)) {
        takers_hold_before(rank, a->round + 1); /* a rank of the set needs no stored result */
        commit_again(rank, a);
    } else if (quorum_is_partial(p) && a->standing == RECORD_HOLDS) {
        rank->clock = a->round;
        tell_closed(rank->worker, a, p->elements > 0 ? a->round : p->round - 1);
    } else if (quorum_was_chosen(p, rank, a->round)) {
        commit_again(rank, a);
    } else if (quorum_is_partial(p) && !takes_all(p)) {
        wait_for_answer(rank, a);
    } else if (a->round + 1 == p->round) {
        tell_commit(rank->worker, a);
    } else {
        piece_fail(p, -EPROTO,
                   "tensor '%s': rank %u is in round %" PRIu64 ", others committed %" PRIu64
                   "; start the job again",
                   p->tensor, rank->worker->number, a->round, p->round - 1);
        /* the round of the announcement is closed, so piece_fail() did not send the error */
        tell_error(rank->worker, a);
    }
}

/* Returns whether ranks without the result can copy it from another rank: the result is the same
 * for all ranks, and the lane's state does not need the round to be computed. */
static bool is_common(const struct piece *p, const struct announcement *a)
{
    /* if the ranks have changed, the state is on this lane (A44) */
    bool is_here = !p->parameters || p->is_regrouped;
    /* if ranks have clocks, the sum lacks the inputs of the other ranks */
    bool is_whole = !quorum_is_loose(p);
    return !a->operation->splits && !a->operation->collects && !a->operation->saves && is_here &&
           is_whole;
}

/* Makes the result in the rank's landing area its input for the copy. The root of a broadcast has
 * no landing area, and its input already is the result. */
static void offer_result(struct announcement *a)
{
    if (a->output_region == ANNOUNCEMENT_NO_OUTPUT)
        return;
    a->input_region = a->output_region;
    a->input_offset = a->output_offset;
}

/* Decides one rank's part in the round that opens. Returns true if the rank already has the result
 * of this round, so that the result can be copied to the other ranks. */
static bool settle_rank(struct piece *p, struct rank *rank)
{
    struct announcement *a = rank_newest(rank);
    if (a->round > p->round)
        a = earliest_of(rank); /* the later announcement is for the next round */
    else if (a->round == p->round)
        commit_kept(rank);
    rank->clock = committed_by(rank);
    if (a->standing == RECORD_IDLE || a->round == 0)
        return false;
    if (a->round < p->round)
        catch_up(p, rank, a);
    else if (a->standing == RECORD_TAKES)
        wait_for_answer(rank, a);
    if (a->round < p->round || a->standing != RECORD_HOLDS)
        return false;
    if (!is_common(p, a)) {
        /* the rank still lends its input, so the round can be repeated for the other ranks */
        round_count(rank, a);
        return false;
    }
    if (p->parameters || piece_follows(p)) {
        p->operation = a->operation;
        p->root = a->root;
    }
    offer_result(a);
    p->announced++;
    return true;
}

/* Counts the ranks that left without reporting their standing. No report can follow. In an elastic
 * job the coordinator removes such ranks, so the count is 0. */
static uint32_t silent_leavers(const struct piece *p, uint32_t *ret_left)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->members && !p->job->is_elastic; i++) {
        if (p->ranks[i].worker->state != WORKER_LEFT || p->ranks[i].has_spoken)
            continue;
        *ret_left = p->ranks[i].worker->number;
        count++;
    }
    return count;
}

/* ---- kept state ---- */

/* Returns whether the stored state is the state before the open round. If no rank has the whole
 * result of a tensor, the round is repeated, even on a lane that has committed this piece. Such a
 * lane reverts to the parameters before the round, which are in the spare state (A19). In a job of
 * fixed ranks, stages change the ranks between committed rounds only, so no round is repeated. */
static bool suits_state(struct piece *p)
{
    if (p->round == p->state_round + 1)
        return true;
    bool is_repeated = p->round == p->state_round && p->job->is_elastic;
    if (!is_repeated || p->state_round == 0 || !parameters_revert(p))
        return false;
    p->state_round--;
    return true;
}

/* Returns a text about state that was lost with a lane; NULL: nothing is lost. Running sums and
 * moments are in no worker's memory, so no worker can supply them. */
static const char *find_loss(struct piece *p)
{
    bool is_fetched = p->parameters && p->parameters->are_set && !p->is_regrouped;
    if (p->round <= 1 || is_fetched || (p->is_regrouped && p->parameters && suits_state(p)))
        return NULL;
    if (p->parameters)
        return "parameters and moments died with the lane; restore a snapshot";
    return quorum_is_loose(p) ? "the running sum was lost with its lane; declare the tensor again"
                              : NULL;
}

/* Begins to read the state from its copy. Returns false if the lane has the state, or if no copy
 * exists. */
static bool fetch(struct piece *p, uint64_t committed)
{
    struct parameters *q = p->parameters;
    q->are_set |= p->elements == 0; /* a piece without elements has no state to lose */
    if (q->are_set || !replica_has(p, committed))
        return false;
    round_fetch(p, committed);
    return true;
}

/* After a change of the ranks, begins to write the state of the piece to a holder without a copy.
 * Returns false if no write is needed, or if the lane does not have the state after round
 * `committed` (A44). */
static bool fill(struct piece *p, uint64_t committed)
{
    if (!p->is_regrouped || !replica_lacks(p, committed))
        return false;
    p->round = committed + 1;
    bool suits = suits_state(p);
    p->round = 0;
    if (suits)
        round_fill(p, committed);
    return suits;
}

/* Opens the round after the newest round that any rank knows to be committed. If a rank has the
 * result of the opened round, the result is copied to the other ranks, and the round is not summed
 * again (W5). */
void round_recover(struct piece *p)
{
    uint32_t left = 0, silent = silent_leavers(p, &left);
    if (p->is_held || replica_is_fetched(p) || replica_is_filled(p) || replica_is_awaited(p))
        /* round_recover() is called again after the thaw, the holder's connection, or the pass */
        return;
    if (silent > 0 && p->terms.quorum == QUORUM_ALL)
        piece_fail(p, -EPIPE, "rank %u has left job '%s'; leave after the same round on all ranks",
                   left, p->job->name);
    if (p->spoken + silent < p->members)
        return;
    uint64_t committed = last_committed(p);
    if (committed > 0 && p->parameters && !p->failure &&
        (fetch(p, committed) || fill(p, committed)))
        return;
    round_settle(p, committed);
}

/* Sends COMMIT to a rank that reports a round whose COMMIT a rank had when leaving. Such a round is
 * committed, whatever other ranks report (is_told_by_leaver()). A stopped rank therefore does not
 * delay this COMMIT, but only the next round. Afterwards the rank counts as idle at this round. */
static void commit_reported(struct rank *rank)
{
    for (int k = 0; k < 2; k++) {
        struct announcement *a = &rank->said[k];
        bool waits = a->standing == RECORD_ANNOUNCE || a->standing == RECORD_HOLDS;
        if (a->round == 0 || !waits || !is_told_by_leaver(rank->piece, a->round))
            continue;
        tell_commit(rank->worker, a);
        a->standing = RECORD_IDLE;
    }
}

void standing_reported(struct rank *rank)
{
    commit_reported(rank);
    round_recover(rank->piece);
}

/* If the state was read from a copy, the piece is handled like a piece on a new owner, even if its
 * ranks have changed. There is one exception: if a rank has the result of the next round with the
 * former set of ranks, this round must not be computed again from other inputs. */
void standing_fetched(struct piece *p, uint64_t committed)
{
    for (uint32_t i = 0; i < p->members; i++) {
        const struct announcement *a = rank_newest(&p->ranks[i]);
        if (a->standing == RECORD_HOLDS && a->round == committed + 1)
            return;
    }
    p->is_regrouped = false;
}

/* Sends a new rank the number of the newest round that has ended, or that will end without the
 * rank. The rank enters after this round. */
static void welcome_new(struct rank *rank)
{
    struct piece *p = rank->piece;
    struct announcement *a = &rank->said[0];
    rank->is_entering = false;
    if (p->failure) {
        tell_error(rank->worker, a);
        return;
    }
    if (!quorum_is_loose(p))
        rank->clock = p->is_copy ? p->round : p->round - 1;
    tell_closed(rank->worker, a, rank->clock);
}

static void welcome_entering(struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        struct rank *rank = &p->ranks[i];
        if (!rank->is_entering)
            continue;
        /* counts the new rank as announced, because no result is copied to this rank */
        p->announced += p->is_copy;
        welcome_new(rank);
    }
}

/* Sets the number of the job's open round from the announcements. Announcements of earlier rounds
 * are used, too: a rank in the set of a committed round may have sent the only announcement that
 * contains a round of the job. */
static void standing_learn(struct piece *p)
{
    for (uint32_t i = 0; i < 2 * p->members; i++) {
        const struct announcement *a = &p->ranks[i / 2].said[i % 2];
        if (a->round > 0 && a->round <= p->round && a->standing != RECORD_IDLE)
            quorum_learn(p, a->operation, a->root + (uint32_t)(p->round - a->round));
    }
}

void round_settle(struct piece *p, uint64_t committed)
{
    p->round = committed + 1;
    if (p->is_regrouped && quorum_is_partial(p) && p->round != p->state_round + 1)
        p->kept_from = 0; /* the stored result belongs to a round that is repeated (W15) */
    const char *loss = find_loss(p);
    standing_learn(p);
    replica_know(p);
    if (loss)
        piece_fail(p, -EOWNERDEAD, "tensor '%s': %s", p->tensor, loss);
    /* the ranks of a failed piece are handled, too, so that every rank gets an answer */
    for (uint32_t i = 0; i < p->members; i++)
        p->is_copy |= settle_rank(p, &p->ranks[i]);
    round_fail_stuck(p);
    welcome_entering(p);
    if (p->failure)
        return; /* a failed piece opens no round */
    if (replica_is_filled(p))
        /* the first counted rank has started the writing of a copy, which round_take_up() would
         * interrupt */
        round_count_early(p);
    else if (p->state == PIECE_COLLECTING)
        round_take_up(p);
}

void standing_enter(struct rank *rank, const struct record_ready *ready)
{
    struct piece *p = rank->piece;
    struct announcement *a = &rank->said[0];
    p->spoken += !rank->has_spoken;
    rank->has_spoken = rank->is_entering = true;
    a->word = ready->word;
    a->standing = RECORD_IDLE;
    if (p->round == 0 && !p->failure)
        round_recover(p);
    else
        welcome_new(rank);
}

void round_resume(struct piece *p)
{
    if (p->round > 0)
        round_go_on(p);
    else if (p->spoken > 0 && !p->failure)
        round_recover(p);
}

/* ---- standing supplied by the former owner ---- */

/* Checks a rank that has its own clock. The running sum contains all pushes up to the lane's value
 * of this clock, even if the worker has not received their COMMITs. */
static bool suits_clock(const struct rank *rank, const struct record_ready *ready)
{
    if (ready->standing != RECORD_ANNOUNCE)
        return ready->standing != RECORD_KEEPS && ready->round == rank->clock;
    return ready->round == rank->clock || ready->round == rank->clock + 1;
}

/* Returns whether the standing is possible. A rank may already have the result of the open round: a
 * round that was aborted after the loss of a replica holder (A49) or a connection (A69) may have
 * sent its result to some ranks. The repeated round has the same bits, because the gradients are
 * still lent. */
bool standing_accepts(const struct piece *p, const struct rank *rank,
                      const struct record_ready *ready)
{
    uint64_t committed = p->round - 1;
    if (p->failure)
        /* the rank may not have received the failure yet, so any standing is possible */
        return true;
    if (quorum_is_loose(p))
        return suits_clock(rank, ready);
    /* after KEEPS the rank also announces the next round, which may be committed, too */
    if (ready->standing == RECORD_KEEPS)
        return p->terms.quorum == QUORUM_ALL && ready->round + 1 >= committed &&
               ready->round <= p->round;
    /* the leader lane may close a round for the job before this lane closes the round */
    if (ready->standing == RECORD_TAKES)
        return ready->round <= p->round + 1;
    if (ready->round < committed && !quorum_is_partial(p))
        return false;
    return ready->round <= (ready->standing == RECORD_ANNOUNCE ? p->round + 1
                            : ready->standing == RECORD_HOLDS  ? p->round
                                                               : committed);
}

/* If the running sum already contains the push, the rank gets its COMMIT, and the push is not read
 * again. */
static void welcome_clock(struct rank *rank, struct announcement *a)
{
    if (a->round <= rank->clock)
        tell_commit(rank->worker, a);
    else
        round_count(rank, a);
}

/* Answers the rank without waiting for other ranks, because the open round is known. */
void standing_welcome(struct rank *rank)
{
    struct piece *p = rank->piece;
    struct announcement *a = rank_newest(rank);
    if (a->round > p->round)
        a = earliest_of(rank); /* the later announcement is for the next round */
    bool is_idle = a->standing == RECORD_IDLE || a->round == 0;
    rank->comes_back = false;
    if (!quorum_is_loose(p))
        rank->clock = committed_by(rank);
    if (is_idle)
        return;
    if (quorum_is_loose(p)) {
        welcome_clock(rank, a);
    } else if (a->round < p->round) {
        catch_up(p, rank, a);
        round_go_on(p); /* late ranks may get their result now */
        round_check_late(p);
    } else if (a->standing == RECORD_TAKES) {
        round_answer_late(rank, a);
    } else if (a->round == p->round) {
        commit_kept(rank);
        if (p->is_copy && a->standing == RECORD_HOLDS)
            offer_result(a);
        round_count(rank, a);
    }
}
