/* Snapshots of jobs in training, for operators. All tensors with update rules stop between the same
 * two iterations, and their state is read from the lanes. RULES.md: K47. */
#ifndef GRADPOOL_COORDINATOR_SNAPSHOT_SNAPSHOT_H
#define GRADPOOL_COORDINATOR_SNAPSHOT_SNAPSHOT_H

#include "svc/coordinator/job/job.h"

/* Delays or ends a snapshot so that another operation on the job can run. The caller of the
 * snapshot receives `why`. */
void saving_give_way(const struct job *job, const char *why);
/* Breaks snapshots with pieces on an aggregator that is away or lost. When the aggregator is back,
 * its released pieces are compared with the store (K9). */
void saving_aggregator_gone(const struct aggregator *a);
/* Frees the snapshots of a peer that is being freed. */
void saving_peer_gone(const struct peer *p);
/* Frees all snapshots at the end of the service, without messages. */
void saving_destroy(struct service *s);

void saving_handle_request(struct peer *p, const envelope *message);
void saving_handle_next(struct peer *p, const envelope *message);
void saving_handle_end(struct peer *p, const envelope *message);

#endif
