/* Owns a worker's list of the ranks in its job. Changes no tensor: a route has the ranks of a
 * tensor (L20). */
#include "client/lib/membership/internal.h"

#include "client/lib/session/process.h"
#include "client/lib/steps/internal.h"

#include <errno.h>
#include <string.h>

void membership_take(struct gp_job *job, const Gradpool__Wire__Membership *told)
{
    gp_membership *m = &job->membership;
    if (told->ranks.len != sizeof m->ranks || told->version < m->version)
        return; /* a newer membership has arrived with the reply to a resume */
    memcpy(m->ranks, told->ranks.data, sizeof m->ranks);
    m->version = told->version;
    m->wanted = told->workers;
    steps_hear_rest(job, told->rest);
    m->workers = 0;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        m->workers += ranks_have(m->ranks, rank);
}

void membership_init(struct gp_job *job, uint32_t workers)
{
    gp_membership *m = &job->membership;
    m->workers = m->wanted = workers;
    for (uint32_t rank = 0; rank < workers; rank++)
        ranks_add(m->ranks, rank);
}

int gp_job_membership(gp_job *job, gp_membership *ret_membership)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    if (!ret_membership)
        return client_error(-EINVAL, "gp_job_membership: ret_membership is NULL; pass a pointer");
    pthread_mutex_lock(&job->lock);
    *ret_membership = job->membership;
    pthread_mutex_unlock(&job->lock);
    return 0;
}

uint32_t gp_job_workers(const gp_job *job)
{
    gp_membership membership;
    return gp_job_membership((gp_job *)job, &membership) < 0 ? 0 : membership.workers;
}

uint32_t gp_job_rank(const gp_job *job) { return job ? job->rank : 0; }
