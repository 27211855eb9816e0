/* Which ranks are in a job, and in which tensors' rounds (K40 to K45). */
#ifndef GRADPOOL_COORDINATOR_JOB_MEMBERS_H
#define GRADPOOL_COORDINATOR_JOB_MEMBERS_H

#include "svc/coordinator/job/job.h"

/* In the job: has joined and neither left nor been lost, or was there to begin with and is still
 * to come, until the number that holds is asked for. */
bool members_have(const struct job *job, uint32_t rank);
uint32_t members_count(const struct job *job);
/* Whose pushes its figures are of, at least 1: what is counted for each worker is divided by it. */
uint32_t members_training(const struct job *job);
/* It was in the job and is not any more: what it has declared it has not. */
bool members_is_gone(const struct job *job, uint32_t rank);
/* A tensor that is made now is for all who are in the job, of the ranks that its terms name. */
void members_begin(struct tensor *tensor);
/* The tensor's terms as lanes know them: for the ranks whose pushes make its rounds now. */
const struct terms *members_terms(const struct tensor *tensor, struct terms *buffer);
/* The worker takes part in the tensor's rounds; one that came late does after a regrouping. */
bool members_has_entered(const struct tensor *tensor, const struct session *session);
/* It came late, and lanes know nothing of it yet. */
bool members_is_new(const struct job *job, uint32_t rank);
/* Some lane may still have the worker that had this rank before. */
bool members_is_leaving(const struct job *job, uint32_t rank);

/* Joined or away: neither left nor lost. */
static inline bool session_is_in(const struct session *session)
{
    return session->state == SESSION_JOINED || session->state == SESSION_AWAY;
}

#endif
