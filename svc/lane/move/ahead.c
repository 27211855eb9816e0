/* Checks the connections of a job whose pieces will move to this lane. RULES.md: A80. */
#include "svc/lane/move/ahead.h"

#include "svc/lane/job/table.h"
#include "svc/wire/ranks.h"

#include <errno.h>

static bool ahead_is_ready(const struct worker *w)
{
    return w->state == WORKER_LEFT ||
           (w->state == WORKER_OPEN && w->conn && fabric_is_warm(w->conn));
}

/* Sets the bits of workers that are not ready. Returns whether any bit was set. */
static bool ahead_find_late(const struct lane_job *job, uint64_t ret_late[RANKS_WORDS])
{
    bool is_any = false;
    for (uint32_t i = 0; i < job->workers_count; i++)
        if (!ahead_is_ready(&job->workers[i])) {
            ranks_add(ret_late, i);
            is_any = true;
        }
    return is_any;
}

int lane_has_workers(struct lane *lane, uint32_t id)
{
    struct lane_job *job = job_find(lane, id);
    uint64_t late[RANKS_WORDS] = {0};
    if (!job)
        return -ENOENT;
    if (job->failure)
        return -ECONNABORTED;
    if (!ahead_find_late(job, late))
        return 0;
    list_for_each (node, &job->pieces) {
        const struct piece *p = list_entry(node, struct piece, link);
        for (uint32_t i = 0; i < p->members; i++)
            if (ranks_have(late, p->ranks[i].worker->number))
                return -EAGAIN;
    }
    return 0;
}
