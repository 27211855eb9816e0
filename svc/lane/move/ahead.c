/* Looks at the connections of a job whose pieces are on their way here. */
#include "svc/lane/move/ahead.h"

#include "svc/lane/job/table.h"

#include <errno.h>

static bool ahead_is_ready(const struct worker *w)
{
    return w->state == WORKER_LEFT ||
           (w->state == WORKER_OPEN && w->conn && fabric_is_warm(w->conn));
}

int lane_has_workers(struct lane *lane, uint32_t id)
{
    struct lane_job *job = job_find(lane, id);
    if (!job)
        return -ENOENT;
    if (job->failure)
        return -ECONNABORTED;
    list_for_each (node, &job->pieces) {
        const struct piece *p = list_entry(node, struct piece, link);
        for (uint32_t i = 0; i < p->members; i++)
            if (!ahead_is_ready(p->ranks[i].worker))
                return -EAGAIN;
    }
    return 0;
}
