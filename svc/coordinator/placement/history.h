/* How jobs ran before, for those that come again: K16. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_HISTORY_H
#define GRADPOOL_COORDINATOR_PLACEMENT_HISTORY_H

#include "svc/coordinator/job/job.h"

#define PROFILES_MAX 1024         /* jobs; the one that was not seen for longest goes */
#define PROFILES_TENSORS_MAX 4096 /* of one job whose lane time is kept apart */

struct service;

/* -ENOMEM. */
int profiles_create(struct service *s);
int profiles_restore(struct service *s, const struct store_profile *row);
void profiles_destroy(struct service *s);
/* What is known of the job goes into its profile and into these tensors of it. `job->terms->layout`
 * must be set. */
void profiles_recall(struct job *job, struct tensor *const *tensors, size_t count);
/* Keeps what is known of it now; nothing of a job that was never measured. */
void profiles_keep(const struct job *job);
/* Of the tensors that a job declares first: the same for the same names, dtypes and shapes in the
 * same order, and not 0. */
uint32_t profiles_layout(struct tensor *const *tensors, size_t count);

#endif
