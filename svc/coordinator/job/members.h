/* Members of a job: the ranks that count, and the ranks whose pushes make a tensor's rounds (K40 to
 * K45). */
#ifndef GRADPOOL_COORDINATOR_JOB_MEMBERS_H
#define GRADPOOL_COORDINATOR_JOB_MEMBERS_H

#include "svc/coordinator/job/job.h"

/* Whether the rank is a member: joined or away, or a founding rank that has not joined yet and is
 * below `wanted`. */
bool members_have(const struct job *job, uint32_t rank);
uint32_t members_count(const struct job *job);
/* Number of ranks behind the job's figures, at least 1: the divisor of counters that add up all
 * workers. */
uint32_t members_training(const struct job *job);
/* Whether the rank of an elastic job left or was lost; its declarations no longer count. */
bool members_is_gone(const struct job *job, uint32_t rank);
/* Sets the members of a new tensor: all members of the job that the tensor's terms name. */
void members_begin(struct tensor *tensor);
/* The tensor's terms with its members as ranks, as lanes need them. Returns the tensor's own terms
 * or `buffer`. */
const struct terms *members_terms(const struct tensor *tensor, struct terms *buffer);
/* Whether the worker takes part in the tensor's rounds; a late worker does after a regrouping. */
bool members_has_entered(const struct tensor *tensor, const struct session *session);
/* Whether the rank is a late worker that has entered no tensor yet, so no lane knows it. */
bool members_is_new(const struct job *job, uint32_t rank);
/* Whether a worker that had this rank is gone but is still a member of some tensor on lanes. */
bool members_is_leaving(const struct job *job, uint32_t rank);

/* Whether the worker is joined or away, neither left nor lost. */
static inline bool session_is_in(const struct session *session)
{
    return session->state == SESSION_JOINED || session->state == SESSION_AWAY;
}

#endif
