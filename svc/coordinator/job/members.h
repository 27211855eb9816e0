/* Members: the ranks that belong to a job, and the ranks of a tensor whose pushes complete its
 * rounds (K40 to K45). */
#ifndef GRADPOOL_COORDINATOR_JOB_MEMBERS_H
#define GRADPOOL_COORDINATOR_JOB_MEMBERS_H

#include "svc/coordinator/job/job.h"

/* Returns whether the rank is a member. A member is joined or away, or is an initial rank below
 * `wanted` that has not joined yet. */
bool members_have(const struct job *job, uint32_t rank);
uint32_t members_count(const struct job *job);
/* Returns the number of training ranks, at least 1. A caller divides a sum over all workers by this
 * number to get the mean of one worker. */
uint32_t members_training(const struct job *job);
/* Returns whether this rank of an elastic job has left or was lost. Its declares are then
 * ignored. */
bool members_is_gone(const struct job *job, uint32_t rank);
/* Sets the members of a new tensor: all members of the job that are in the tensor's set of ranks.
 * In a job with step records, late workers that have not entered yet are left out. */
void members_begin(struct tensor *tensor);
/* Returns whether, in each stage, the tensor's rounds need exactly the members of the stage. True
 * for a tensor of all ranks whose rounds need all of them, unless the client library owns the
 * tensor (K174). */
bool members_suit_stages(const struct tensor *tensor);
/* Returns whether a stage has begun, and members_suit_stages() is true for the tensor. */
bool members_follow_stage(const struct tensor *tensor);
/* Returns whether the ranks of the tensor's rounds may differ from its declared set. */
bool members_vary(const struct tensor *tensor);
/* Returns the terms of the tensor for a message to a lane, with the present members as the set of
 * ranks. The result is the tensor's own terms, or `buffer`. */
const struct terms *members_terms(const struct tensor *tensor, struct terms *buffer);
/* Returns whether the tensor's rounds need the worker. A late worker is needed after the lanes have
 * added its rank. */
bool members_has_entered(const struct tensor *tensor, const struct session *session);
/* Returns whether the rank is a late worker that has not entered any tensor yet. No lane knows such
 * a rank. */
bool members_is_new(const struct job *job, uint32_t rank);
/* Returns whether a lane still lists an earlier worker of this rank as a member of a tensor. */
bool members_is_leaving(const struct job *job, uint32_t rank);

/* Returns whether the workers sleep before a step, or are about to (SL20). */
static inline bool members_rests(const struct job *job) { return job->ranks->rest & 1; }
/* Returns whether the workers can sleep: only before a step, which all ranks begin together. */
static inline bool members_can_rest(const struct job *job) { return job->index->has_steps; }

static inline bool session_is_in(const struct session *session)
{
    return session->state == SESSION_JOINED || session->state == SESSION_AWAY;
}

#endif
