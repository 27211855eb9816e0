/* Snapshots (svc/view) of the coordinator's replies, and rates between two snapshots. */
#ifndef GRADPOOL_OPS_SNAPSHOT_SNAPSHOT_H
#define GRADPOOL_OPS_SNAPSHOT_SNAPSHOT_H

#include "svc/channel/channel.h"
#include "svc/view/view.h"

#include <stdbool.h>

struct snapshot {
    struct view_status status;
    struct view_jobs jobs; /* sorted by number */
    struct view_cores cores;
    struct view_lane **lanes; /* lanes of all aggregators that are not lost, sorted by number */
    size_t lanes_count;
    envelope *status_reply, *jobs_reply; /* messages to which the views point */
    struct view_part *parts;
};

/* Creates a snapshot, which owns both replies after success. A NULL reply results in an empty view.
 * Returns 0, -EBADMSG if a reply has another kind (such as a failure), or -ENOMEM. */
int snapshot_create(envelope *status_reply, envelope *jobs_reply, struct snapshot **ret_snapshot);
/* Frees the snapshot. NULL is allowed. */
void snapshot_destroy(struct snapshot *s);

/* Finds a job. Returns NULL if it is unknown, or if the reader may not see it. */
const struct view_job *snapshot_job(const struct snapshot *s, uint32_t job_id);

/* Computes rates, shares and sums in `s`. If `before` is NULL, or from before a restart of the
 * service, rates are NAN. */
void snapshot_compare(const struct snapshot *before, struct snapshot *s);

#endif
