/* Several gradients of one rank in a round. The number of a rank's gradients is fixed when the
 * round starts, and other lanes learn this number from the set. Sums nothing. RULES.md: A125, A126;
 * svc/wire/README.md: W22. */
#include "svc/lane/round/gradients.h"

#include "svc/lane/piece/closing.h"
#include "svc/wire/round_set.h"

void gradients_go_on(struct piece *p)
{
    struct rank *rank;
    while ((rank = closing_next_to_go_on(p))) {
        struct announcement *a = rank_said(rank, p->round);
        /* a rank that has lost its connection gets the request after its next announcement */
        if (a->round == p->round && a->standing == RECORD_ANNOUNCE)
            tell_go_on(rank->worker, a);
    }
}

void gradients_repeat_request(struct rank *rank, struct announcement *a)
{
    const struct piece *p = rank->piece;
    bool is_open = p->state == PIECE_COLLECTING && a->round == p->round;
    if (is_open && rank->gradients < p->job->sampling->gradients && closing_expects(rank))
        tell_go_on(rank->worker, a);
}

bool gradients_are_more(const struct rank *rank, const struct record_ready *ready)
{
    return rank->piece->takers && rank->has_spoken && ready->gradient > RECORD_GRADIENT &&
           (ready->standing == RECORD_ANNOUNCE || ready->standing == RECORD_TAKES);
}

bool gradients_count(struct rank *rank, const struct record_ready *ready)
{
    struct piece *p = rank->piece;
    struct announcement *a = rank_said(rank, ready->round);
    bool is_same = a->round == ready->round && a->word == ready->word;
    bool is_whole = ready->standing == RECORD_ANNOUNCE;
    if (!is_same || a->standing != RECORD_ANNOUNCE || ready->gradient <= rank->gradients)
        return false;
    if (is_whole && p->state == PIECE_COLLECTING && a->round == p->round) {
        rank->gradients = ready->gradient;
        closing_arrived(rank, rank->gradients);
        return true;
    }
    if (!is_whole)
        closing_interrupted(rank);
    else if (a->round <= p->round)
        closing_late(rank);
    if (a->round < p->round)
        closing_began(rank); /* otherwise closing_closed() reports the next gradient */
    return false;
}

void gradients_fill_set(const struct piece *p, struct record_chosen *ret_set)
{
    uint8_t counts[RECORD_MISSING_WORDS * 64] = {0};
    for (uint32_t i = 0; i < p->members; i++) {
        const struct rank *rank = &p->ranks[i];
        counts[rank->worker->number] = rank->part ? (uint8_t)rank->gradients : 0;
    }
    /* the call cannot fail: the round has a gradient, and the terms limit ranks and gradients */
    (void)round_set_of_counts(ret_set, p->round, counts, p->job->workers_count);
}
