/* Takers: ranks outside a set that request a result, on the leader lane of a job with backup
 * workers (W22). For each taker the lane stores the round whose results the taker receives, and the
 * time for which later rounds wait for the taker. Sends no message. RULES.md: A87. */
#ifndef GRADPOOL_LANE_PIECE_TAKERS_H
#define GRADPOOL_LANE_PIECE_TAKERS_H

#include "svc/lane/types.h"

/* Creates the state for the ranks of a piece that leads the rounds of its job. NULL: no memory. */
struct takers *takers_create(struct piece *p);
void takers_free(struct piece *p);
/* Returns the address of the pointer to the rule (closing.h); this pointer is NULL at first.
 * Returns NULL if the piece leads no rounds. */
struct closing **takers_closing(const struct piece *p);
/* Like takers_closing(), for the pointers to a replay (replay.h) and to a recording
 * (recording.h). */
struct lane_replay **takers_replay(const struct piece *p);
struct lane_recording **takers_recording(const struct piece *p);

/* Records that the rank needs no result of a round before `round`. The lane knows this when the
 * rank has announced `round` of the hidden tensor, or has reported the completion word of `round`.
 */
void takers_hold_before(const struct rank *rank, uint64_t round);
/* Returns whether the rank needs no stored result of `round` and of earlier rounds. */
bool takers_holds(const struct rank *rank, uint64_t round);
/* Records that the rank receives the results of `round`, because its announcement was late and the
 * answer names this round. A piece without takers ignores the call. */
void takers_begin(const struct rank *rank, uint64_t round);
/* Records a report of the rank: the results of `round` have landed, or (RECORD_ROUND_NONE) a lane
 * no longer had the results. takers_asking() returns the rank until takers_answer() is called. */
void takers_landed(const struct rank *rank, uint64_t round);
/* Returns the first taker behind `after` (NULL: of all) whose report has no answer yet, or NULL. */
struct rank *takers_asking(struct piece *p, const struct rank *after);
/* Returns the round of the rank's report that has no answer yet. */
uint64_t takers_reported(const struct rank *rank);
/* Returns the round for the answer to the rank's report. If the returned round is the reported one,
 * the rank may begin its next gradient. Otherwise the returned round is the newest closed one, and
 * the rank receives its results next. The open round must be known. */
uint64_t takers_answer(const struct rank *rank);
/* Like takers_answer(), but the caller chooses the round of the answer. Returns `round`. */
uint64_t takers_answer_with(const struct rank *rank, uint64_t round);
/* Drops the report of a rank whose connection has ended. The rank repeats the report. */
void takers_forget(const struct rank *rank);

/* Returns whether the open round must not close yet, because the close would overwrite results that
 * a rank lacks.
 *
 * If lanes update parameters, the round waits for takers of a round two or more rounds back. The
 * first call for a round sets the end of the wait. After the end of the wait, the round no longer
 * waits for these takers. With terms.lag the round waits for every rank that lacks a result, and
 * the wait has no end. */
bool takers_hold(struct piece *p);
/* Measures the time since the last close, and records that the ranks of the round's set need no
 * stored result of the round. Called when a round closes, after its set is stored. */
void takers_closed(struct piece *p);

/* The state that moves with the piece consists of takers_words() numbers. takers_load() returns
 * false if a number is out of bounds. */
static inline uint32_t takers_words(const struct piece *p)
{
    return p->takers ? p->members + 1 : 0;
}
void takers_save(const struct piece *p, uint64_t *ret_words);
bool takers_load(struct piece *p, const uint64_t *words);

#endif
