/* Where a round stood when a new owner takes a piece over: learned from what workers say (W5), or
 * told by the former owner, which let go of it. Decides which round is open and what each rank gets
 * for what it says first; sums nothing. README: A27, A28; svc/wire/README.md: W5, W12. */
#include "svc/lane/round/standing.h"

#include "svc/lane/piece/quorum.h"
#include "svc/lane/round/holder.h"
#include "svc/lane/round/piece_failure.h"
#include "svc/lane/round/round.h"
#include "svc/lane/state/replica.h"

#include <errno.h>
#include <inttypes.h>

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

static bool somebody_enters(const struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].is_entering)
            return true;
    }
    return false;
}

/* That a round was committed may have died with its lane, on the way to every rank: a copy that
 * begins with it tells so, too; all ranks have its result (W4). A state that is here is known
 * without it, and may go back by a round, as may any that other ranks made (A44); who enters comes
 * behind all pieces of a tensor. */
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

/* The first n of n, in the last round, too: where workers come and go that may have had more. */
static bool takes_all(const struct piece *p)
{
    return p->terms.quorum == QUORUM_FIRST && p->terms.bound == p->members && !p->job->is_elastic;
}

/* It says to be in a round that is committed. Where all take part its landing area has held the
 * result since before anybody was told so (W4), even when the word of it was lost with the lane;
 * else only if it says so, or is known to have been in it, and the others wait for the next result
 * (W12). */
static void catch_up(struct piece *p, struct rank *rank, struct announcement *a)
{
    if (p->failure && p->terms.quorum != QUORUM_ALL) {
        tell_error(rank->worker, a); /* no later result comes */
    } else if (quorum_is_partial(p) && a->standing == RECORD_HOLDS) {
        rank->clock = a->round;
        tell_closed(rank->worker, a, p->round - 1);
    } else if (quorum_was_chosen(p, rank, a->round)) {
        tell_commit(rank->worker, a);
    } else if (quorum_is_partial(p) && !takes_all(p)) {
        rank->late = a;
        p->late++;
    } else if (a->round + 1 == p->round) {
        tell_commit(rank->worker, a);
    } else {
        piece_fail(p, -EPROTO,
                   "tensor '%s': rank %u is in round %" PRIu64 ", another has committed %" PRIu64,
                   p->tensor, rank->worker->number, a->round, p->round - 1);
        tell_error(rank->worker, a); /* its round is closed: the failure alone does not reach it */
    }
}

/* A result that is the same for all can be copied from whoever holds it, if the lane itself has no
 * need of the round. */
static bool is_common(const struct piece *p, const struct announcement *a)
{
    bool is_here = !p->parameters || p->is_regrouped; /* then its state is all there (A44) */
    bool is_whole = !quorum_is_loose(p);              /* else the others' inputs are not in it */
    return !a->operation->splits && !a->operation->collects && !a->operation->saves && is_here &&
           is_whole;
}

/* A broadcast's root has no landing area: its input is the result. */
static void offer_result(struct announcement *a)
{
    if (!a->has_output)
        return;
    a->input_region = a->output_region;
    a->input_offset = a->output_offset;
}

/* One rank's place in the round that opens. Returns whether it holds that round's result, and the
 * others can have it from there. */
static bool settle_rank(struct piece *p, struct rank *rank)
{
    struct announcement *a = newest_of(rank);
    if (a->round > p->round)
        a = earliest_of(rank); /* one more is announced */
    rank->clock = committed_by(rank);
    if (a->standing == RECORD_IDLE || a->round == 0)
        return false;
    if (a->round < p->round)
        catch_up(p, rank, a);
    if (a->round < p->round || a->standing != RECORD_HOLDS)
        return false;
    if (!is_common(p, a)) {
        round_count(rank, a); /* its input is lent still: the round is done again for the others */
        return false;
    }
    if (p->parameters)
        p->operation = a->operation;
    offer_result(a);
    p->announced++;
    return true;
}

/* Who has left without a word never tells where it stood. */
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

/* ---- what was kept ---- */

/* A tensor whose result nobody holds whole is done again, though this piece of it had been
 * committed: its parameters before that are in the spare state (A19), untouched since. */
static bool suits_state(struct piece *p)
{
    if (p->round == p->state_round + 1)
        return true;
    if (p->round != p->state_round || p->state_round == 0 || !parameters_revert(p))
        return false;
    p->state_round--;
    return true;
}

/* What a lost lane takes with it: running sums and moments lie in no worker's memory. */
static const char *find_loss(struct piece *p)
{
    bool is_fetched = p->parameters && p->parameters->are_set && !p->is_regrouped;
    if (p->round <= 1 || is_fetched || (p->is_regrouped && p->parameters && suits_state(p)))
        return NULL;
    if (p->parameters)
        return "parameters and moments died with the lane; restore a snapshot";
    return quorum_is_loose(p) ? "its running sum was lost with its lane" : NULL;
}

/* False: there is no need to, or no copy. */
static bool fetch(struct piece *p, uint64_t committed)
{
    struct parameters *q = p->parameters;
    q->are_set |= p->elements == 0; /* there is nothing to lose */
    if (q->are_set || !replica_has(p, committed))
        return false;
    round_fetch(p, committed);
    return true;
}

/* Where it stays it has other ranks, and one of them has no copy yet: before anything else. The
 * state is that of this round, or becomes it (A44). */
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

/* Open round = one after the last that anybody knows to be committed. If somebody holds its result,
 * that is what the rest get, never a second sum (W5). */
void round_recover(struct piece *p)
{
    uint32_t left = 0, silent = silent_leavers(p, &left);
    if (p->is_held || replica_is_fetched(p) || replica_is_filled(p) || replica_is_awaited(p))
        return; /* its thaw, or what is fetched or filled, comes back to it */
    if (silent > 0 && p->terms.quorum == QUORUM_ALL)
        piece_fail(p, -EPIPE, "rank %u has left job '%s'", left, p->job->name);
    if (p->spoken + silent < p->members)
        return;
    uint64_t committed = last_committed(p);
    if (committed > 0 && p->parameters && !p->failure &&
        (fetch(p, committed) || fill(p, committed)))
        return;
    round_settle(p, committed);
}

/* Where its state came from the copy it is the piece of a new owner, though its ranks have changed
 * since. But a result of the ranks before, which somebody holds, nobody makes again. */
void standing_fetched(struct piece *p, uint64_t committed)
{
    for (uint32_t i = 0; i < p->members; i++) {
        const struct announcement *a = newest_of(&p->ranks[i]);
        if (a->standing == RECORD_HOLDS && a->round == committed + 1)
            return;
    }
    p->is_regrouped = false;
}

/* It comes after the newest round that is over, or will be without it. */
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
        p->announced += p->is_copy; /* it need not be copied to who does not want it */
        welcome_new(rank);
    }
}

void round_settle(struct piece *p, uint64_t committed)
{
    p->round = committed + 1;
    if (p->is_regrouped && quorum_is_partial(p) && p->round != p->state_round + 1)
        p->has_kept = false; /* of a round that is done again (W15) */
    const char *loss = find_loss(p);
    replica_know(p);
    if (loss)
        piece_fail(p, -EOWNERDEAD, "tensor '%s': %s", p->tensor, loss);
    for (uint32_t i = 0; i < p->members; i++) /* also when it has failed: nobody waits in vain */
        p->is_copy |= settle_rank(p, &p->ranks[i]);
    if (quorum_is_stuck(p))
        piece_fail(p, -EOWNERDEAD,
                   "tensor '%s': the result of round %" PRIu64 " was lost with its lane", p->tensor,
                   p->round - 1);
    welcome_entering(p);
    if (p->failure)
        return; /* ranks disagree about the operation */
    if (replica_is_filled(p))
        round_count_early(p); /* the first has set off the copy: the others are heard as well */
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

/* ---- a former owner that let go ---- */

/* Of a piece whose ranks have clocks of their own: it knows what the sum holds, whatever the worker
 * has heard of it. */
static bool suits_clock(const struct rank *rank, const struct record_ready *ready)
{
    if (ready->standing != RECORD_ANNOUNCE)
        return ready->standing != RECORD_KEEPS && ready->round == rank->clock;
    return ready->round == rank->clock || ready->round == rank->clock + 1;
}

/* A round that was not finished because a keeper (A49) or a connection (A69) was lost may have
 * given results: it is done again, to the same bits, of gradients that are lent still. */
bool standing_accepts(const struct piece *p, const struct rank *rank,
                      const struct record_ready *ready)
{
    uint64_t committed = p->round - 1;
    if (p->failure)
        return true; /* it may not have heard of it: then it stands wherever that has left it */
    if (quorum_is_loose(p))
        return suits_clock(rank, ready);
    if (ready->standing == RECORD_KEEPS) /* and announces the next, which may be committed, too */
        return p->terms.quorum == QUORUM_ALL && ready->round + 1 >= committed &&
               ready->round <= p->round;
    if (ready->round < committed && !quorum_is_partial(p))
        return false;
    return ready->round <= (ready->standing == RECORD_ANNOUNCE ? p->round + 1
                            : ready->standing == RECORD_HOLDS  ? p->round
                                                               : committed);
}

/* Nothing that it lent for a round that is in the sum is read again. */
static void welcome_clock(struct rank *rank, struct announcement *a)
{
    if (a->round <= rank->clock)
        tell_commit(rank->worker, a);
    else
        round_count(rank, a);
}

/* No other rank need speak first: the round that is open is known. */
void standing_welcome(struct rank *rank)
{
    struct piece *p = rank->piece;
    struct announcement *a = newest_of(rank);
    if (a->round > p->round)
        a = earliest_of(rank); /* one more is announced */
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
        round_go_on(p); /* the late have a result to get */
    } else if (a->round == p->round) {
        if (p->is_copy && a->standing == RECORD_HOLDS)
            offer_result(a);
        round_count(rank, a);
    }
}
