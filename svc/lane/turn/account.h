/* Accounts of the lane's time, by job and piece. All functions belong to the lane's thread.
 * RULES.md: A22. */
#ifndef GRADPOOL_LANE_TURN_ACCOUNT_H
#define GRADPOOL_LANE_TURN_ACCOUNT_H

#include "svc/lane/types.h"

/* Bills `ns` of the lane's time to the job. */
void account_bill(struct lane_job *job, uint64_t ns);
/* The same for an event that is being handled; account_events() does not bill this time again. */
void account_apart(struct lane_job *job, uint64_t ns);
/* Bills the job's share of the polls until now, by its connections. */
void account_looks(struct lane_job *job);
/* The job has one connection more (`more` 1) or less (-1) on this fabric. */
void account_connection(struct lane_job *job, const struct fabric *fabric, int more);
/* The fabric has taken `spent_ns` since its last events: bills it to the jobs of these events, by
 * their bytes. `count` 0: the time waits for the next events. */
void account_events(struct lane *lane, size_t fabric, const struct fabric_event *events, int count,
                    uint64_t spent_ns);
/* Counts the time of a turn for the piece that the job worked on. */
void account_turn(struct lane_job *job, uint64_t spent_ns);
/* A round of the piece can be worked on. `begins`: a new round, not an answer or a copy. */
void account_ready(struct piece *p, bool begins);
/* The first chunk of the round has started. */
void account_started(struct piece *p);
/* The piece has no round in progress any more: committed, failed or given up. */
void account_done(struct piece *p);
/* The piece is about to be freed. */
void account_forget(struct piece *p);

#endif
