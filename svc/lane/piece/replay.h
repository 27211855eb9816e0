/* Replay of recorded sets, on the leader lane of a job with backup workers (W32). Rank 0 sends the
 * sets and takers of a recording. A round closes with exactly its recorded ranks, and a straggler
 * begins its next gradient after the same round as in the recording. After the last recorded round
 * the rule of the job decides. Sends no message. RULES.md: A115. */
#ifndef GRADPOOL_LANE_PIECE_REPLAY_H
#define GRADPOOL_LANE_PIECE_REPLAY_H

#include "svc/lane/types.h"

/* Creates the replay of a piece that leads the rounds of its job. Returns 0 or -ENOMEM. */
int replay_create(struct piece *p);
void replay_free(struct piece *p);

/* Stores the takers of a round. Returns the piece whose rounds the recording decides; NULL: the
 * piece is not on this lane. */
struct piece *replay_learn(struct lane_job *job, const struct record_chosen *takers);

/* The functions below have no effect on a piece without a replay. */

/* Returns whether the recording decides the set of the open round. */
bool replay_decides(const struct piece *p);
/* Returns whether the open round may close, as far as the recording decides: each rank of the set
 * has announced the round, and the takers of the previous round have its results. */
bool replay_allows(struct piece *p);
/* Returns whether the rank may take part in the open round. */
bool replay_takes(const struct piece *p, const struct rank *rank);
/* Returns whether the open round cannot close, because a rank of the recorded set has left, or rank
 * 0 has left before it has sent this set. `ret_left`: the rank that has left. */
bool replay_is_hopeless(const struct piece *p, uint32_t *ret_left);

/* The next two functions return whether a rank outside a set gets an answer now. The answer names
 * `*ret_round`: the round whose results the rank fetches next, or, if the rank has reported this
 * round, the round after which the rank begins its next gradient. `*ret_round` is set only if the
 * recording decides. */

/* Called for a rank that has announced a closed round, or has given up its gradient of a round. */
bool replay_answers_late(const struct rank *rank, uint64_t *ret_round);
/* Called for a rank that has reported the results of round `landed`. RECORD_ROUND_NONE: a lane no
 * longer had the results. */
bool replay_answers_report(const struct rank *rank, uint64_t landed, uint64_t *ret_round);

#endif
