/* Members of a job and of its tensors, computed from sessions and tensors. Owns no state. Changes
 * nothing except the members of a new tensor. RULES.md: K40 to K45. */
#include "svc/coordinator/job/members.h"

#include "svc/coordinator/job/tensor.h"

#include <string.h>

bool members_have(const struct job *job, uint32_t rank)
{
    const struct session *session = job->sessions[rank];
    return session ? session_is_in(session)
                   : rank < job->ranks->founding && rank < job->ranks->wanted;
}

bool members_is_gone(const struct job *job, uint32_t rank)
{
    return job->terms->is_elastic && job->sessions[rank] && !session_is_in(job->sessions[rank]);
}

uint32_t members_count(const struct job *job)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        count += members_have(job, rank);
    return count;
}

uint32_t members_training(const struct job *job)
{
    uint32_t count = job->terms->is_elastic ? members_count(job) : job->workers;
    return count ? count : 1;
}

/* Returns whether a new tensor begins without the late workers of its job, which then enter all
 * tensors together (K108). True if the job has step records, and some member of the tensor's set is
 * no late worker. */
static bool begins_without_late(const struct tensor *tensor)
{
    const struct job *job = tensor->job;
    if (!job->index->has_steps)
        return false;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (members_have(job, rank) && !members_is_new(job, rank) &&
            terms_have_rank(&tensor->terms, rank))
            return true;
    return false;
}

void members_begin(struct tensor *tensor)
{
    const struct job *job = tensor->job;
    bool lacks_late = begins_without_late(tensor);
    tensor->grouped = job->ranks->version;
    memset(tensor->members, 0, sizeof tensor->members);
    if (members_follow_stage(tensor)) {
        memcpy(tensor->members, job->ranks->stage, sizeof tensor->members);
        return;
    }
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (members_have(job, rank) && terms_have_rank(&tensor->terms, rank) &&
            !(lacks_late && members_is_new(job, rank)))
            ranks_add(tensor->members, rank);
}

bool members_suit_stages(const struct tensor *tensor)
{
    return !tensor->job->terms->is_elastic && terms_are_for_all(&tensor->terms) &&
           tensor->terms.quorum == QUORUM_ALL && !tensor_is_reserved(tensor);
}

bool members_follow_stage(const struct tensor *tensor)
{
    return tensor->job->ranks->stage && members_suit_stages(tensor);
}

bool members_vary(const struct tensor *tensor)
{
    return tensor->job->terms->is_elastic || members_follow_stage(tensor);
}

const struct terms *members_terms(const struct tensor *tensor, struct terms *buffer)
{
    if (!members_vary(tensor))
        return &tensor->terms;
    *buffer = tensor->terms;
    memcpy(buffer->ranks, tensor->members, sizeof buffer->ranks);
    return buffer;
}

bool members_has_entered(const struct tensor *tensor, const struct session *session)
{
    return !session->job->terms->is_elastic ||
           (ranks_have(tensor->members, session->rank) && session->entered <= tensor->grouped);
}

bool members_is_new(const struct job *job, uint32_t rank)
{
    const struct session *session = job->sessions[rank];
    if (!session || session->entered == 0)
        return false;
    for (size_t i = 0; i < job->tensors_count; i++)
        if (members_has_entered(job->tensors[i], session))
            return false;
    return true;
}

bool members_is_leaving(const struct job *job, uint32_t rank)
{
    if (!job->terms->is_elastic || members_have(job, rank))
        return false;
    for (size_t i = 0; i < job->tensors_count; i++)
        if (!job->tensors[i]->failure && ranks_have(job->tensors[i]->members, rank))
            return true;
    return false;
}
