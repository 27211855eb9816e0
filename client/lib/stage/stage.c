/* Refuses calls of ranks that are not members of the present stage. Owns no memory: stage/ creates
 * and changes the state. */
#include "client/lib/stage/stage.h"

#include "client/lib/job/tensor.h"
#include "client/lib/session/process.h"

#include <errno.h>
#include <string.h>

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

/* Checks a tensor that follows the stages. A route changes the ranks of the tensor before the
 * coordinator's answer gives this rank the members of a stage, so in a stage the ranks of the
 * tensor are the members. */
static int job_stage_check_following(const struct gp_tensor *t, const struct job_stage *stage,
                                     bool is_open)
{
    if (stage->is_busy)
        return client_error(-EBUSY,
                            "tensor '%s': another thread is in gp_stage_next() or gp_stage_end() "
                            "of job '%s'; push after the call",
                            t->name, t->job->name);
    if (stage->has_asked)
        return client_error(-EPERM,
                            "tensor '%s': gp_stage_next() of rank %u of job '%s' has failed, and "
                            "the next stage may have begun; repeat the call, then push",
                            t->name, t->job->rank, t->job->name);
    bool is_whole = !t->knows_ranks && ranks_count(stage->members) == t->job->workers;
    if (tensor_is_outside(t))
        return client_error(-EPERM,
                            "tensor '%s': rank %u of job '%s' is idle in stage '%s'; push in a "
                            "stage in which this rank is a member",
                            t->name, t->job->rank, t->job->name, stage->name);
    if (!is_open || is_whole ||
        (t->knows_ranks && memcmp(t->ranks, stage->members, sizeof t->ranks) == 0))
        return 0;
    return client_error(-EPERM,
                        "tensor '%s': its ranks are not the members of stage '%s' of job '%s'; "
                        "declare the tensor before the first stage",
                        t->name, stage->name, t->job->name);
}

int job_stage_check_declare(const struct gp_job *job, const char *name, const struct terms *terms)
{
    const struct job_stage *stage = job_stage_of(job);
    bool is_ours = strncmp(name, NAME_RESERVED, strlen(NAME_RESERVED)) == 0;
    if (!stage || !*stage->name || stage->has_ended || stage->is_carrying || is_ours ||
        !terms_are_for_all(terms) || ranks_count(stage->members) == job->workers)
        return 0;
    return client_error(-EPERM,
                        "tensor '%.200s': some ranks of job '%s' are idle in stage '%s'; declare "
                        "tensors of all ranks before the first stage",
                        name, job->name, stage->name);
}

int job_stage_check_tensor(const struct gp_tensor *t)
{
    const struct job_stage *stage = job_stage_of(t->job);
    bool is_open = stage && *stage->name && !stage->has_ended && !stage->is_carrying;
    if (stage && tensor_suits_stages(t))
        return job_stage_check_following(t, stage, is_open);
    if (!is_open)
        return 0;
    for (uint32_t rank = 0; rank < t->job->workers; rank++)
        if (terms_have_rank(&t->terms, rank) && !ranks_have(stage->members, rank))
            return client_error(-EPERM,
                                "tensor '%s': rank %u is idle in stage '%s' of job '%s'; declare "
                                "the tensor for the ranks of the stage, or push between stages",
                                t->name, rank, stage->name, t->job->name);
    return 0;
}
