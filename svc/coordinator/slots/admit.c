/* Decides whether a worker may join a job of a pool: only with the newest incarnation of its rank
 * (SL2). A refused worker ends with exit code 75, which is no failure of its job. Also refuses
 * operators' resizes of a pool's job (SL3). */
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/session/session.h"
#include "svc/coordinator/slots/internal.h"

#include <errno.h>
#include <inttypes.h>

static void slots_refuse_stale(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join,
                               const char *why)
{
    peer_fail(p, request, -ESTALE,
              "job %s: this process is start %" PRIu64 " of rank %u by its pool, %s; the process "
              "ends with exit code %d",
              join->job, join->incarnation, join->rank, why, SLOTS_EXIT_STALE);
}

/* Ends the session of an earlier start of the rank, if the pool could not end the process of this
 * start, for example on a node that Slurm has lost (SL10). */
static void slots_end_former(struct slots_job *job, uint32_t rank)
{
    const struct job *of = slots_training(job);
    struct session *session = of && rank < of->workers ? of->sessions[rank] : NULL;
    if (session && session_is_in(session))
        session_replaced(session);
}

/* Stores that this start has joined. The end of the former start is stored first. A
 * coordinator that ends between both writes ends the former start again after its restart. */
static void slots_note_join(struct slots_job *job, uint32_t rank)
{
    struct slots_worker *worker = &job->workers[rank];
    bool is_first = !worker->has_joined, is_ordered = worker->state == SLOTS_ORDERED;
    worker->has_joined = true;
    slots_worker_found(job, rank); /* stores a worker that was only ordered */
    if (is_first && !is_ordered)
        (void)slots_worker_keep(job, rank);
}

/* Returns whether the training has ended, although the pool has not reported the end of a process
 * yet. A late worker would begin another training alone. */
static bool admit_has_ended(const struct slots_job *job)
{
    if (slots_training(job))
        return false;
    for (uint32_t rank = 0; rank < job->reach; rank++)
        if (job->workers[rank].has_left && !job->workers[rank].is_leaving)
            return true;
    return false;
}

bool slots_may_join(struct peer *p, uint64_t request, const WIRE(JoinRequest) * join)
{
    struct slots_job *job = slots_find_job(p->service, p->tenant, join->job);
    char name[SLOTS_TEXT_BYTES];
    if (!job && join->incarnation == 0)
        return true;
    if (!job) {
        slots_refuse_stale(p, request, join, "and the job of the pool is over");
        return false;
    }
    if (join->incarnation == 0) {
        peer_fail(
            p, request, -EEXIST,
            "the workers of job %s are started by %s alone; choose another GRADPOOL_JOB for this "
            "training",
            job->name, slots_pool_name(job->pool, name, sizeof name));
        return false;
    }
    const struct slots_worker *worker =
        join->rank < job->workers_max ? &job->workers[join->rank] : NULL;
    bool is_newest = worker && worker->incarnation == join->incarnation;
    if (!is_newest || worker->is_leaving) {
        slots_refuse_stale(p, request, join,
                           is_newest ? "and was asked to leave before it has joined"
                                     : "and is not the newest one");
        return false;
    }
    if (!worker->has_joined) { /* slots_end_former() may free the job */
        slots_end_former(job, join->rank);
        job = slots_find_job(p->service, p->tenant, join->job);
    }
    if (!job || admit_has_ended(job)) {
        slots_refuse_stale(p, request, join, "and the training has ended");
        return false;
    }
    slots_note_join(job, join->rank);
    slots_look_soon(p->service);
    return true;
}

int slots_may_resize(const struct job *job, struct err *err)
{
    const struct slots_job *of = slots_find_job(job->service, job->tenant, job->name);
    if (!of)
        return 0;
    return err_set(err, -EOPNOTSUPP,
                   "job %s was not resized: the scheduler of site %.64s chooses its number of "
                   "workers, from %u to %u; see gradpool explain %s",
                   job->name, of->pool->site->name, of->workers_min, of->workers_max, job->name);
}
