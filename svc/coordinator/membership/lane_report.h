/* Reports of lanes about a failed job or a lost worker. */
#ifndef GRADPOOL_COORDINATOR_MEMBERSHIP_LANE_REPORT_H
#define GRADPOOL_COORDINATOR_MEMBERSHIP_LANE_REPORT_H

#include "svc/coordinator/job/job.h"
#include "svc/coordinator/peer/peer.h"

void aggregator_handle_failure(struct peer *p, const envelope *message);
void members_handle_lost(struct peer *p, const envelope *message);
/* Cancels the failure of the job that a lane's report has scheduled. Called at the end of the
 * job. */
void lane_said_forget(struct job *job);

#endif
