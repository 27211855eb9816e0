/* Jobs that have ended recently, with the last state of each rank. A pool that has adopted workers
 * after a restart cannot read their exit codes. Such a worker counts as trained if it has sent a
 * Goodbye, and as lost otherwise. */
#include "svc/coordinator/session/session.h"
#include "svc/coordinator/slots/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDED_MAX 64

struct slots_ended_job {
    char *name; /* name of the job; NULL: the entry is unused */
    char tenant[KEY_TENANT_BYTES_MAX + 1];
    uint32_t workers;
    uint8_t *has_left; /* by rank: the session of the rank has ended with a Goodbye */
};

struct slots_ended {
    struct slots_ended_job jobs[ENDED_MAX];
    /* number of jobs that have ended since the start; a new job replaces the oldest one */
    uint64_t count;
};

static void ended_clear(struct slots_ended_job *ended)
{
    free(ended->name);
    free(ended->has_left);
    *ended = (struct slots_ended_job){0};
}

struct slots_ended *slots_ended_create(void) { return calloc(1, sizeof(struct slots_ended)); }

void slots_ended_destroy(struct slots_ended *all)
{
    for (size_t i = 0; all && i < ENDED_MAX; i++)
        ended_clear(&all->jobs[i]);
    free(all);
}

static bool ended_has_left(const struct job *job, uint32_t rank)
{
    const struct session *session = job->sessions[rank];
    return session && session->state == SESSION_LEFT && !session->has_failed && !job->failure;
}

/* Stores for each worker of a pool's job that has joined whether the worker has sent a Goodbye. */
static void ended_mark(const struct job *job)
{
    struct slots_job *of = slots_find_job(job->service, job->tenant, job->name);
    for (uint32_t rank = 0; of && rank < of->reach && rank < job->workers; rank++) {
        of->workers[rank].has_left = ended_has_left(job, rank);
        of->workers[rank].was_lost = job->sessions[rank] && !of->workers[rank].has_left;
    }
    if (of)
        slots_workers_keep(of);
}

/* Stores the last state of each rank. Without memory the job is not stored. */
void slots_job_ended(const struct job *job)
{
    ended_mark(job);
    struct slots_ended *all = job->service->works->slots->ended;
    struct slots_ended_job *ended = &all->jobs[all->count++ % ENDED_MAX];
    ended_clear(ended);
    ended->name = strdup(job->name);
    ended->has_left = calloc(job->workers + 1, 1);
    if (!ended->name || !ended->has_left)
        return ended_clear(ended);
    snprintf(ended->tenant, sizeof ended->tenant, "%s", job->tenant->key.tenant);
    ended->workers = job->workers;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        ended->has_left[rank] = ended_has_left(job, rank);
}

/* Returns the newest ended job of this name; NULL: there is none. `only`: the tenant of the job;
 * NULL: any tenant. */
static const struct slots_ended_job *ended_find(const struct service *s, const struct tenant *only,
                                                const char *name)
{
    const struct slots_ended *all = s->works->slots->ended;
    for (uint64_t i = 1; i <= ENDED_MAX && i <= all->count; i++) {
        const struct slots_ended_job *ended = &all->jobs[(all->count - i) % ENDED_MAX];
        if (ended->name && strcmp(ended->name, name) == 0 &&
            (!only || strcmp(ended->tenant, only->key.tenant) == 0))
            return ended;
    }
    return NULL;
}

static WIRE(WorkerView) * ended_worker(const struct slots_ended_job *ended, uint32_t rank,
                                       slots_take_fn take, void *context)
{
    WIRE(WorkerView) *view = take(context, sizeof *view);
    if (view)
        *view = MESSAGE_PART(WorkerView, worker_view, .rank = rank,
                             .state = (char *)session_state_name(
                                 ended->has_left[rank] ? SESSION_LEFT : SESSION_LOST));
    return view;
}

bool slots_view_ended(const struct service *s, const struct tenant *only, const char *name,
                      slots_take_fn take, void *context, WIRE(JobsReply) * reply)
{
    const struct slots_ended_job *ended =
        *name && reply->n_jobs == 0 ? ended_find(s, only, name) : NULL;
    if (!ended)
        return true;
    WIRE(JobView) *view = take(context, sizeof *view);
    reply->ended = take(context, sizeof *reply->ended);
    if (!view || !reply->ended)
        return false;
    *view = MESSAGE_PART(JobView, job_view, .workers = ended->workers, .job = (char *)name);
    view->ranks = take(context, (ended->workers + 1) * sizeof *view->ranks);
    for (uint32_t rank = 0; view->ranks && rank < ended->workers; rank++) {
        WIRE(WorkerView) *worker = ended_worker(ended, rank, take, context);
        if (!worker)
            return false;
        view->ranks[view->n_ranks++] = worker;
    }
    reply->ended[reply->n_ended++] = view;
    return view->ranks != NULL;
}
