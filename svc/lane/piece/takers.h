/* Ranks outside a set that fetch a result, on the leader lane of a job with backup workers (W22):
 * the round that each of them takes, and how long the round after the next waits for them.
 * Sends no message. RULES.md: A87. */
#ifndef GRADPOOL_LANE_PIECE_TAKERS_H
#define GRADPOOL_LANE_PIECE_TAKERS_H

#include "svc/lane/types.h"

/* Creates the state for the ranks of a piece that leads the rounds of its job. NULL: no memory. */
struct takers *takers_create(struct piece *p);
void takers_free(struct piece *p);
/* Returns the place of the rule's state (closing.h), which is NULL at first; NULL: the piece leads
 * no rounds. */
struct closing **takers_closing(const struct piece *p);

/* The rank has announced this round of the hidden tensor, or has its word, and so holds all rounds
 * before. */
void takers_hold_before(const struct rank *rank, uint64_t round);
/* The rank's announcement was late, and the answer names this round: the rank takes its results. A
 * piece without takers ignores the call. */
void takers_begin(const struct rank *rank, uint64_t round);
/* The rank has reported that the results of `round` have landed, or (RECORD_ROUND_NONE) that a lane
 * no longer had them. takers_asking() returns the rank until takers_answer(). */
void takers_landed(const struct rank *rank, uint64_t round);
/* Returns a taker whose report has no answer yet, or NULL. */
struct rank *takers_asking(struct piece *p);
/* Returns the round that answers the rank's report: the one that has landed if the rank may begin
 * its next gradient, otherwise the newest closed round, which the rank takes. The open round must
 * be known. */
uint64_t takers_answer(const struct rank *rank);
/* Drops the report of a rank whose connection has ended. The rank repeats the report. */
void takers_forget(const struct rank *rank);

/* Returns whether the open round has to wait, because a rank lacks results that the close would
 * overwrite. In a job whose lanes update parameters, this is a taker of a round two or more rounds
 * back: the first call for a round sets the end of the wait, and after this end the round waits no
 * longer for a taker that has not landed. With terms.lag, this is any rank that is further behind,
 * and the wait has no end. */
bool takers_hold(struct piece *p);
/* Measures the time since the last close, and counts the results of the round for the ranks of its
 * set. Called when a round closes, after its set is stored. */
void takers_closed(struct piece *p);

/* The state that moves with the piece: takers_words() numbers. takers_load() returns false if a
 * number is out of bounds. */
static inline uint32_t takers_words(const struct piece *p)
{
    return p->takers ? p->members + 1 : 0;
}
void takers_save(const struct piece *p, uint64_t *ret_words);
bool takers_load(struct piece *p, const uint64_t *words);

#endif
