/* The rule that closes the rounds of a job with backup workers, on its leader lane (W22): events of
 * the leading piece in, permission to close out. The rule itself is packer/backup/. Sends no
 * message. RULES.md: A96. */
#ifndef GRADPOOL_LANE_PIECE_CLOSING_H
#define GRADPOOL_LANE_PIECE_CLOSING_H

#include "svc/lane/types.h"

/* Returns whether the terms, NULL for none, are possible for the number of ranks. */
bool closing_is_sound(const struct backup_terms *terms, uint32_t ranks);
/* Creates the rule of a piece that leads the rounds of its job; without one if the quorum alone
 * closes rounds. The terms are sound. 0 or -ENOMEM. */
int closing_create(struct piece *p, const struct backup_terms *terms);
void closing_free(struct piece *p);
/* Returns whether the piece has a rule. */
bool closing_is_here(const struct piece *p);

/* Functions below ignore a piece without a rule. */

/* The rank has announced the open round. A round that has started does not count the rank. */
void closing_arrived(const struct rank *rank);
/* The rank has announced a closed round. */
void closing_late(const struct rank *rank);
/* The rank, which was outside a set, begins its next gradient. */
void closing_began(const struct rank *rank);
/* Returns whether the open round, which has its least number of gradients, closes now. If not, the
 * lane calls again after the next announcement, or when the wait of the piece ends (waits.h). A
 * round whose set is known already closes at once. */
bool closing_allows(struct piece *p);
/* Returns the reason of the last permission, a value of enum record_reason. The piece has a
 * rule. */
uint8_t closing_reason(const struct piece *p);
/* The round has closed with the ranks that have parts; the set is stored. */
void closing_closed(struct piece *p);
/* Returns the mean time of the rank's gradients; 0: unknown, or no rule measures it. */
uint64_t closing_scale_ns(const struct rank *rank);
/* Adds the sums of one lane for the last closed round. The round has a sample after the sums of the
 * last lane. Sums of other rounds are dropped. */
void closing_measured(struct lane_job *job, const struct record_measure *sums);

#endif
