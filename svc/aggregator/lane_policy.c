/* The lane's policies: round-robin by chunk, least work first, first come first served. Decide the
 * order of jobs alone; the order of pieces within a job is its own. README: A20. */
#include "svc/aggregator/lane_policy.h"

#include <errno.h>
#include <string.h>

static const char *const names[] = {
    [LANE_FAIR] = "fair", [LANE_SHORTEST] = "shortest", [LANE_FIFO] = "fifo"};

int lane_policy_find(const char *name, enum lane_policy *ret_policy)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_policy = (enum lane_policy)i;
            return 0;
        }
    }
    return -EINVAL;
}

/* Who is shortest is passed over by nobody; who is longest waits a while, not for ever. */
static struct lane_job *shortest(struct lane *lane)
{
    struct lane_job *best = NULL;
    list_for_each (node, &lane->running) {
        struct lane_job *job = list_entry(node, struct lane_job, run_link);
        if (job->passes++ >= POLICY_PASSES_MAX) {
            best = job;
            break;
        }
        if (!best || job->due_bytes < best->due_bytes)
            best = job;
    }
    if (best)
        best->passes = 0;
    return best;
}

static struct lane_job *first(struct lane *lane)
{
    struct list *node = list_first(&lane->running);
    return node ? list_entry(node, struct lane_job, run_link) : NULL;
}

struct lane_job *policy_next(struct lane *lane)
{
    struct lane_job *job = lane->options.policy == LANE_SHORTEST ? shortest(lane) : first(lane);
    if (job)
        list_remove(&job->run_link);
    return job;
}

void policy_put_back(struct lane_job *job)
{
    struct lane *lane = job->lane;
    if (!list_is_empty(&job->run_link))
        return; /* its chunk has woken it */
    if (lane->options.policy == LANE_FIFO)
        list_prepend(&lane->running, &job->run_link);
    else
        list_append(&lane->running, &job->run_link);
}
