/* The stage of a job, from the coordinator's message. */
#ifndef GRADPOOL_OPS_SNAPSHOT_STAGE_H
#define GRADPOOL_OPS_SNAPSHOT_STAGE_H

#include "svc/channel/channel.h"
#include "svc/view/view.h"

/* Creates the view of the job's stage, which the caller frees. The texts of the view are not
 * copied, so the message must outlive the view. `*ret_stage` is NULL if the job has had no stage.
 * Returns 0 or -ENOMEM. */
int stage_view_create(const Gradpool__Wire__JobView *job, struct view_stage **ret_stage);

#endif
