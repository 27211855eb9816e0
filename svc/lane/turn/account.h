/* The lane's books. README: A22. */
#ifndef GRADPOOL_LANE_TURN_ACCOUNT_H
#define GRADPOOL_LANE_TURN_ACCOUNT_H

#include "svc/lane/types.h"

/* So much of the lane's time was the job's. */
void account_bill(struct lane_job *job, uint64_t ns);
/* The same, of the events at hand, which are not to pay for it again. */
void account_apart(struct lane_job *job, uint64_t ns);
/* Its part of the polls until now, for its connections. */
void account_looks(struct lane_job *job);
/* The job has one more connection, or one less. */
void account_connection(struct lane_job *job, const struct fabric *fabric, int more);
/* `spent_ns` was taken by this fabric since its last events: whose these are pay for it. */
void account_events(struct lane *lane, size_t fabric, const struct fabric_event *events, int count,
                    uint64_t spent_ns);
/* The job's turn took so long, for the piece that it worked on last. */
void account_turn(struct lane_job *job, uint64_t spent_ns);
/* A round of it can be worked on; `begins`: it is a new one. */
void account_ready(struct piece *p, bool begins);
/* Its first chunk is taken. */
void account_started(struct piece *p);
/* Its round is over, or will never be. */
void account_done(struct piece *p);
/* It goes. */
void account_forget(struct piece *p);

#endif
