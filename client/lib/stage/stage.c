/* Refuses calls of ranks that are not members of the present stage. Owns no memory: stage/ creates
 * and changes the state. */
#include "client/lib/stage/stage.h"

#include "client/lib/job/tensor.h"
#include "client/lib/session/process.h"

#include <errno.h>

struct job_stage *job_stage_of(const struct gp_job *job)
{
    return job->tables ? job->tables->stage : NULL;
}

bool job_stage_is_active(const struct gp_job *job)
{
    const struct job_stage *stage = job_stage_of(job);
    return !stage || (!stage->has_ended && ranks_have(stage->members, job->rank));
}

int job_stage_check(const struct gp_job *job, const char *call)
{
    const struct job_stage *stage = job_stage_of(job);
    if (job_stage_is_active(job))
        return 0;
    if (stage->has_ended)
        return client_error(-EPERM,
                            "%s: rank %u of job '%s' has ended stage '%s'; call gp_stage_next() "
                            "first",
                            call, job->rank, job->name, stage->name);
    return client_error(-EPERM,
                        "%s: rank %u of job '%s' is idle in stage '%s'; call gp_stage_end(), or "
                        "work in a stage in which this rank is a member",
                        call, job->rank, job->name, stage->name);
}

int job_stage_check_tensor(const struct gp_tensor *t)
{
    const struct job_stage *stage = job_stage_of(t->job);
    if (!stage || !*stage->name || stage->has_ended || stage->is_carrying)
        return 0;
    for (uint32_t rank = 0; rank < t->job->workers; rank++)
        if (terms_have_rank(&t->terms, rank) && !ranks_have(stage->members, rank))
            return client_error(-EPERM,
                                "tensor '%s': rank %u is idle in stage '%s' of job '%s'; declare "
                                "the tensor for the ranks of the stage, or push between stages",
                                t->name, rank, stage->name, t->job->name);
    return 0;
}
