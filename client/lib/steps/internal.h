/* Steps of an elastic job: its deal, and the hand-over of the deal. */
#ifndef GRADPOOL_CLIENT_LIB_STEPS_INTERNAL_H
#define GRADPOOL_CLIENT_LIB_STEPS_INTERNAL_H

#include "client/gradpool_elastic.h"
#include "client/lib/elastic/steps.h"
#include "client/lib/job/job.h"

/* Frees weight and deal of a job that the worker leaves. */
void steps_free(struct gp_job *job);
/* Sets the error of a process without memory for the deal. Returns -ENOMEM. */
int steps_fail_memory(void);

/* Sleeps until the rest that the last record names is over. Returns whether this rank has slept.
 * Called with the job's lock held, which is released during the sleep. */
bool steps_rest(struct gp_job *job);
/* Stores the number of the job's rest. Called with the job's lock held. */
void steps_hear_rest(struct gp_job *job, uint32_t rest);

/* Sends the deal to late workers, in as many rounds as its words need: the giver pushes the words,
 * all other ranks push zeros. Returns 1; 0: the giver was lost before the first round; or an error.
 * Called with the job's lock held. After -ETIMEDOUT the next call continues. */
int carry_exchange(struct gp_job *job, uint64_t deadline_ns, uint64_t timeout_ns);
/* Returns the giver: the lowest rank that has the state and stays in the job; if no such rank
 * stays, the lowest rank that has the state. */
uint32_t carry_giver(const struct deal_record *record);

#endif
