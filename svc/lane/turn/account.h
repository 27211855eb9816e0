/* Accounts of the lane's time, by job and piece. All functions are for the lane's thread. RULES.md:
 * A22. */
#ifndef GRADPOOL_LANE_TURN_ACCOUNT_H
#define GRADPOOL_LANE_TURN_ACCOUNT_H

#include "svc/lane/types.h"

/* Bills `ns` of the lane's time to the job. */
void account_bill(struct lane_job *job, uint64_t ns);
/* The same for an event that is being handled. account_events() does not bill this time again. */
void account_apart(struct lane_job *job, uint64_t ns);
/* Bills to the job its share of the polls until now, in proportion to its connections. */
void account_looks(struct lane_job *job);
/* The job has one connection more (`more` 1) or one less (-1) on this fabric. */
void account_connection(struct lane_job *job, const struct fabric *fabric, int more);
/* The fabric has used `spent_ns` since its last events: bills this time to the jobs of these
 * events, in proportion to their bytes. `count` 0: the time is billed with the next events. */
void account_events(struct lane *lane, size_t fabric, const struct fabric_event *events, int count,
                    uint64_t spent_ns);
/* Counts the time of a turn for the piece on which the job worked. */
void account_turn(struct lane_job *job, uint64_t spent_ns);
/* A round of the piece can be worked on. `begins`: this is a new round, not an answer or a copy. */
void account_ready(struct piece *p, bool begins);
/* The first chunk of the round has started. */
void account_started(struct piece *p);
/* The round of the piece is no longer in progress: it was committed, has failed or was given up. */
void account_done(struct piece *p);
/* The piece is about to be freed. */
void account_forget(struct piece *p);

#endif
