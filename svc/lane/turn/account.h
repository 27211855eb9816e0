/* Accounts of the lane's time, by job and piece. All functions must run on the lane's thread.
 * RULES.md: A22. */
#ifndef GRADPOOL_LANE_TURN_ACCOUNT_H
#define GRADPOOL_LANE_TURN_ACCOUNT_H

#include "svc/lane/types.h"

/* Charges `ns` of the lane's time to the job. */
void account_bill(struct lane_job *job, uint64_t ns);
/* Like account_bill(), for time that was used during the handling of an event. account_events()
 * does not charge this time again. */
void account_apart(struct lane_job *job, uint64_t ns);
/* Charges the job for its share of the time of all polls until now, in proportion to its
 * connections. */
void account_looks(struct lane_job *job);
/* Counts a new (`more` 1) or closed (-1) connection of the job on this fabric. */
void account_connection(struct lane_job *job, const struct fabric *fabric, int more);
/* Charges `spent_ns`, the time used for the fabric since its last events, to the jobs of `events`,
 * in proportion to their bytes. If `count` is 0, the time is charged with the next events. */
void account_events(struct lane *lane, size_t fabric, const struct fabric_event *events, int count,
                    uint64_t spent_ns);
/* Charges the job for the part of a poll that a fabric has spent on its connections, and for the
 * time in which another thread has unmapped its memory. Called by the fabric. */
void account_polled(struct fabric_group *group, uint64_t polled_ns, uint64_t helped_ns);
/* Adds the time of a turn to the piece on which the job has worked. */
void account_turn(struct lane_job *job, uint64_t spent_ns);
/* Called when a round of the piece is ready. `begins`: the round is new, and is not an answer or a
 * copy. */
void account_ready(struct piece *p, bool begins);
/* Called when the first chunk of the round has started. */
void account_started(struct piece *p);
/* Called when the round was committed, has failed or was aborted. */
void account_done(struct piece *p);
/* Called before the piece is freed. */
void account_forget(struct piece *p);

#endif
