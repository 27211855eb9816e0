/* Starts waiting jobs in passes over the queue. Owns the list of waiting jobs. */
#include "bench/explore/site/fixed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void fixed_init(struct fixed_queue *queue, enum fixed_rule rule, uint32_t slots)
{
    *queue = (struct fixed_queue){.rule = rule, .free = slots};
}

void fixed_fini(struct fixed_queue *queue)
{
    free(queue->jobs);
    *queue = (struct fixed_queue){0};
}

int fixed_submit(struct fixed_queue *queue, uint32_t id, uint32_t workers, uint32_t slots)
{
    if (workers > slots)
        return -ENOSPC;
    if (queue->count == queue->room) {
        size_t room = queue->room ? queue->room * 2 : 16;
        struct fixed_job *jobs = reallocarray(queue->jobs, room, sizeof *jobs);
        if (!jobs)
            return -ENOMEM;
        queue->jobs = jobs;
        queue->room = room;
    }
    queue->jobs[queue->count++] = (struct fixed_job){.id = id, .workers = workers};
    return 0;
}

/* Starts the job if it fits. Otherwise returns false, and increases the job's anger (fixed.h). */
static bool fixed_try(struct fixed_queue *queue, struct fixed_job *job)
{
    if (job->workers > queue->free) {
        job->anger++;
        return false;
    }
    queue->free -= job->workers;
    job->has_started = true;
    return true;
}

/* Starts angry jobs in order of arrival. Returns false if an angry job has to wait: all free slots
 * are then reserved for this job. */
static bool fixed_serve_angry(struct fixed_queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        if (queue->jobs[i].anger >= FIXED_ANGRY && !fixed_try(queue, &queue->jobs[i]))
            return false;
    return true;
}

static void fixed_serve(struct fixed_queue *queue)
{
    if (queue->rule == FIXED_PRIORITY && !fixed_serve_angry(queue))
        return;
    for (size_t i = 0; i < queue->count; i++)
        if (!queue->jobs[i].has_started && !fixed_try(queue, &queue->jobs[i]) &&
            queue->rule == FIXED_FIFO)
            return;
}

size_t fixed_pass(struct fixed_queue *queue, uint32_t *ret_ids)
{
    size_t started = 0, kept = 0;
    fixed_serve(queue);
    for (size_t i = 0; i < queue->count; i++)
        if (queue->jobs[i].has_started)
            ret_ids[started++] = queue->jobs[i].id;
        else
            queue->jobs[kept++] = queue->jobs[i];
    queue->count = kept;
    return started;
}
