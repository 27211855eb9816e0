/* Snapshots that operators take of jobs in training: tensors with update rules stand still, all
 * between the same two iterations, while their lanes are read. README: K47. */
#ifndef GRADPOOL_COORDINATOR_SNAPSHOT_SNAPSHOT_H
#define GRADPOOL_COORDINATOR_SNAPSHOT_SNAPSHOT_H

#include "svc/coordinator/job/job.h"

/* What else is to happen to the job goes first: it trains on, and who asked is told why. */
void saving_give_way(const struct job *job, const char *why);
/* It is away, or lost: what stands still there is met again when it is back (K19). */
void saving_aggregator_gone(const struct aggregator *a);
/* Who asked is gone. */
void saving_peer_gone(const struct peer *p);
/* At the end of the service: nobody is told anything. */
void saving_destroy(struct service *s);

void saving_handle_request(struct peer *p, const envelope *message);
void saving_handle_next(struct peer *p, const envelope *message);
void saving_handle_end(struct peer *p, const envelope *message);

#endif
