/* The step contract: the deal of a job, and its step records. */
#ifndef GRADPOOL_CLIENT_LIB_STEPS_INTERNAL_H
#define GRADPOOL_CLIENT_LIB_STEPS_INTERNAL_H

#include "client/gradpool_elastic.h"
#include "client/lib/elastic/steps.h"
#include "client/lib/job/job.h"

/* Frees weight and deal of a job that is being left. */
void steps_free(struct gp_job *job);

/* Hands the deal over to late workers, in as many rounds as its words need. Every rank gives the
 * words of the giver, which has them; all others give zeros. Returns 1: the giver was there; 0: it
 * was lost; else an error. Called with the job's lock held; after -ETIMEDOUT the next call goes
 * on. */
int carry_exchange(struct gp_job *job, uint64_t deadline_ns, uint64_t timeout_ns);
/* Returns the rank that gives the state: the lowest one that has it and stays, if any stays. */
uint32_t carry_giver(const struct deal_record *record);

#endif
