/* Snapshots of jobs in training, for operators: tensors with update rules stand still between the
 * same two iterations while their lanes are read. RULES.md: K47. */
#ifndef GRADPOOL_COORDINATOR_SNAPSHOT_SNAPSHOT_H
#define GRADPOOL_COORDINATOR_SNAPSHOT_SNAPSHOT_H

#include "svc/coordinator/job/job.h"

/* Ends or delays a snapshot for another operation on the job; the caller gets `why`. */
void saving_give_way(const struct job *job, const char *why);
/* Breaks snapshots with pieces on an aggregator that is away or lost; its released pieces are
 * settled when it is back (K9). */
void saving_aggregator_gone(const struct aggregator *a);
/* Frees the snapshots of a peer that is gone. */
void saving_peer_gone(const struct peer *p);
/* Frees all snapshots at the end of the service, without messages. */
void saving_destroy(struct service *s);

void saving_handle_request(struct peer *p, const envelope *message);
void saving_handle_next(struct peer *p, const envelope *message);
void saving_handle_end(struct peer *p, const envelope *message);

#endif
