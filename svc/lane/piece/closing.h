/* The rule that closes the rounds of a job with backup workers, on its leader lane (W22). This file
 * reports events of the leading piece to the rule, and asks the rule whether a round may close.
 * packer/backup/ contains the rules. The file sends no message. RULES.md: A96. */
#ifndef GRADPOOL_LANE_PIECE_CLOSING_H
#define GRADPOOL_LANE_PIECE_CLOSING_H

#include "svc/lane/types.h"

/* Returns whether the terms are possible for this number of ranks. `terms` NULL: the job has no
 * backup workers, which is always possible. */
bool closing_is_sound(const struct backup_terms *terms, uint32_t ranks);
/* Creates the rule of a piece that leads the rounds of its job. If the quorum alone closes rounds,
 * no rule is created. The terms must be sound. Returns 0 or -ENOMEM. */
int closing_create(struct piece *p, const struct backup_terms *terms);
void closing_free(struct piece *p);
/* Returns whether the piece has a rule. */
bool closing_is_here(const struct piece *p);

/* The functions below do nothing for a piece without a rule. */

/* Reports that the rank has announced its first `gradients` gradients of the open round. Gradients
 * that were reported before count once. Ignored if the round has started. */
void closing_arrived(const struct rank *rank, uint32_t gradients);
/* Reports that the rank has announced a closed round. */
void closing_late(const struct rank *rank);
/* Reports that the rank has given its gradient up, because the round was closed. */
void closing_interrupted(const struct rank *rank);
/* Reports that the rank, which was outside a set, begins its next gradient. */
void closing_began(const struct rank *rank);
/* Returns whether the open round closes now. Called when the round has the minimum number of
 * gradients for a close. After false the lane calls this function again after the next
 * announcement, or when the wait of the piece ends (waits.h). A round whose set is already known
 * closes at once. */
bool closing_allows(struct piece *p);
/* Returns the next rank that begins another gradient of the open round, as the rule decided in the
 * last closing_allows(); NULL: no further rank. */
struct rank *closing_next_to_go_on(struct piece *p);
/* Returns whether the rule expects a gradient of the rank. */
bool closing_expects(const struct rank *rank);
/* Returns the reason of the last permission, a value of enum record_reason. The piece must have a
 * rule. */
uint8_t closing_reason(const struct piece *p);
/* Reports to the rule that the round has closed. The set of the round was stored before. */
void closing_closed(struct piece *p);
/* Returns the mean time of the rank's gradients; 0: unknown, or no rule measures this time. */
uint64_t closing_scale_ns(const struct rank *rank);
/* Adds the sums of one lane for the last closed round. After the sums of the last lane the rule
 * receives the sums of all lanes. Sums of other rounds are dropped. */
void closing_measured(struct lane_job *job, const struct record_measure *sums);

#endif
