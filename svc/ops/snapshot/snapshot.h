/* Snapshots (svc/view) of the coordinator's replies, and rates between two snapshots. */
#ifndef GRADPOOL_OPS_SNAPSHOT_SNAPSHOT_H
#define GRADPOOL_OPS_SNAPSHOT_SNAPSHOT_H

#include "svc/channel/channel.h"
#include "svc/view/view.h"

#include <stdbool.h>

struct snapshot {
    struct view_status status;
    struct view_jobs jobs; /* by ascending numbers */
    struct view_cores cores;
    struct view_lane **lanes; /* lanes of all aggregators that are not lost, by ascending numbers */
    size_t lanes_count;
    envelope *status_reply, *jobs_reply; /* the views point into them */
    struct view_part *parts;
};

/* Takes over both replies on success; a NULL reply gives an empty view. -EBADMSG (a reply of
 * another kind, such as a failure), -ENOMEM. */
int snapshot_create(envelope *status_reply, envelope *jobs_reply, struct snapshot **ret_snapshot);
/* NULL is fine. */
void snapshot_destroy(struct snapshot *s);

/* NULL: unknown, or hidden from the reader. */
const struct view_job *snapshot_job(const struct snapshot *s, uint32_t job_id);

/* Fills rates, shares and sums in `s`. `before` NULL, or of another start of the service: rates are
 * NAN. */
void snapshot_compare(const struct snapshot *before, struct snapshot *s);

#endif
