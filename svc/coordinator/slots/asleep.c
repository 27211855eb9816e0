/* Changes the states of workers that sleep or wake by order of the scheduler (SL20, SL22). rest.c
 * then stores the changes and informs the workers. */
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/slots/internal.h"

static bool rest_has_joined(const struct job *of, uint32_t rank)
{
    return of && rank < of->workers && of->sessions[rank] && session_is_in(of->sessions[rank]);
}

/* Begins a rest. Only workers that have joined can sleep, so all other workers leave. The speed is
 * measured anew afterwards, without the time of the rest. */
void slots_rest_begin(struct slots_job *job)
{
    const struct job *of = slots_training(job);
    job->rest->is_ordered = true;
    *job->speed = (struct slots_speed){.has_reported = job->speed->has_reported};
    for (uint32_t rank = 0; rank < job->reach; rank++) {
        bool may_sleep = rank < job->workers_min && rest_has_joined(of, rank);
        struct slots_worker *worker = &job->workers[rank];
        worker->is_leaving |= worker->state != SLOTS_NONE && !may_sleep;
    }
}

bool slots_rest_wake(struct slots_job *job, uint32_t rank, uint32_t slot)
{
    struct slots_worker *worker = &job->workers[rank];
    job->rest->is_ordered = false;
    if (worker->state != SLOTS_RESTING || worker->is_leaving)
        return false;
    worker->state = SLOTS_STARTED;
    worker->slot = slot;
    worker->is_waking = true;
    return true;
}
