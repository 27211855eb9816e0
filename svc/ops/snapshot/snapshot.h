/* Snapshots (svc/view) of the coordinator's replies, and what two tell of the time between. */
#ifndef GRADPOOL_OPS_SNAPSHOT_SNAPSHOT_H
#define GRADPOOL_OPS_SNAPSHOT_SNAPSHOT_H

#include "svc/channel/channel.h"
#include "svc/view/view.h"

#include <stdbool.h>

struct snapshot {
    struct view_status status;
    struct view_jobs jobs; /* numbers ascend */
    struct view_cores cores;
    struct view_lane **lanes; /* of all aggregators that are not lost, numbers ascend */
    size_t lanes_count;
    envelope *status_reply, *jobs_reply; /* the views point into them */
    struct view_part *parts;
};

/* Takes over both replies on success; each may be NULL, its view is then empty. -EBADMSG (another
 * reply, a failure perhaps), -ENOMEM. */
int snapshot_create(envelope *status_reply, envelope *jobs_reply, struct snapshot **ret_snapshot);
/* NULL is fine. */
void snapshot_destroy(struct snapshot *s);

/* NULL: a job that the reader may not see. */
const struct view_job *snapshot_job(const struct snapshot *s, uint32_t job_id);

/* Fills rates, shares and what follows from them in `s`. `before` NULL, or of another start of the
 * service: rates are NAN. */
void snapshot_compare(const struct snapshot *before, struct snapshot *s);

#endif
