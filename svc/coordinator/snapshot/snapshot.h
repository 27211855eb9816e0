/* Snapshots that operators take of jobs in training: tensors with update rules stand still, all
 * between the same two iterations, while their lanes are read. README: K47. */
#ifndef GRADPOOL_COORDINATOR_SNAPSHOT_SNAPSHOT_H
#define GRADPOOL_COORDINATOR_SNAPSHOT_SNAPSHOT_H

#include "svc/coordinator/job/job.h"

/* One of this job is being taken: its tasks stay where they are. */
bool saving_is_busy(const struct job *job);
/* What else is to happen to the job goes first: it trains on, and who asked is told why. */
void saving_give_way(const struct job *job, const char *why);
/* It is away, or lost: what stands still there is met again when it is back (K19). */
void saving_aggregator_gone(const struct aggregator *a);
/* Who asked is gone. */
void saving_peer_gone(const struct peer *p);
/* At the end of the service: nobody is told anything. */
void saving_destroy(struct service *s);

#endif
