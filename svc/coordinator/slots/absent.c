/* Jobs whose pool is missing (SL5). Without the pool, the coordinator receives no reports about
 * ends of processes, so a slot becomes free when the session of its worker has ended. */
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/slots/internal.h"

#include <errno.h>
#include <stdio.h>

static uint64_t absent_forget_ns(const struct slots_job *job)
{
    return job->pool->away_ns + SLOTS_FORGET_S * NS_PER_S;
}

/* Returns whether a worker has joined under its present order, even if the training has ended since
 * then. */
static bool absent_has_joined(const struct slots_job *job)
{
    for (uint32_t rank = 0; rank < job->reach; rank++)
        if (job->workers[rank].has_left || job->workers[rank].was_lost)
            return true;
    return slots_training(job) != NULL;
}

uint32_t slots_removed_in_s(const struct slots_job *job)
{
    uint64_t now_ns = clock_now_ns(), due_ns = absent_forget_ns(job);
    if (job->pool->peer || absent_has_joined(job))
        return 0;
    return now_ns >= due_ns ? 1 : (uint32_t)((due_ns - now_ns) / NS_PER_S) + 1;
}

static void absent_end_workers(struct slots_job *job)
{
    for (uint32_t rank = 0; rank < job->reach; rank++)
        if (job->workers[rank].state != SLOTS_NONE)
            slots_worker_gone(job, rank);
}

/* Returns the rank of a worker that had joined, and whose session has ended with an error or
 * without a goodbye; -1: none. */
static int absent_find_lost(const struct slots_job *job)
{
    for (uint32_t rank = 0; rank < job->reach; rank++)
        if (job->workers[rank].was_lost && !job->workers[rank].is_leaving)
            return (int)rank;
    return -1;
}

/* Called when all sessions of the training have ended. The job fails if a worker that had joined
 * has ended with an error, or without a goodbye. Otherwise the training is complete. */
static void absent_end_training(struct slots_job *job)
{
    char text[SLOTS_TEXT_BYTES];
    int lost = absent_find_lost(job);
    snprintf(text, sizeof text,
             "rank %d ended with an error, or without a goodbye, while its pool was gone; see the "
             "log of that rank, and start the pool again",
             lost);
    if (lost >= 0)
        slots_job_end(job, -ECONNRESET, text);
    absent_end_workers(job);
}

/* Called while no worker has joined. A process of the job may still be starting, so its slot is
 * kept until the job is removed. */
static void absent_wait(struct slots_job *job)
{
    char text[SLOTS_TEXT_BYTES];
    if (!job->is_ending && clock_now_ns() < absent_forget_ns(job))
        return;
    snprintf(text, sizeof text, "no worker has joined, and its pool has been gone for %u s",
             SLOTS_FORGET_S);
    slots_job_end(job, -ETIMEDOUT, text);
    absent_end_workers(job);
}

static void absent_look_at_sessions(struct slots_job *job, const struct job *of)
{
    for (uint32_t rank = 0; rank < job->reach && rank < of->workers; rank++) {
        const struct session *session = of->sessions[rank];
        if (job->workers[rank].state > SLOTS_WANTED && session && !session_is_in(session))
            slots_worker_gone(job, rank);
    }
}

void slots_look_without_pool(struct slots_job *job)
{
    const struct job *of = slots_training(job);
    if (of)
        absent_look_at_sessions(job, of);
    else if (absent_has_joined(job))
        absent_end_training(job);
    else
        absent_wait(job);
}
