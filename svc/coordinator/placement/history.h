/* Figures of earlier runs, for jobs that come again (K16). */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_HISTORY_H
#define GRADPOOL_COORDINATOR_PLACEMENT_HISTORY_H

#include "svc/coordinator/job/job.h"

#define PROFILES_MAX 1024         /* most jobs; the oldest is removed */
#define PROFILES_TENSORS_MAX 4096 /* most tensors of a job with lane time */

struct service;

/* -ENOMEM. */
int profiles_create(struct service *s);
int profiles_restore(struct service *s, const struct store_profile *row);
void profiles_destroy(struct service *s);
/* Sets the job's profile, and the lane time of `tensors`, from an earlier run. `job->terms->layout`
 * must be set. */
void profiles_recall(struct job *job, struct tensor *const *tensors, size_t count);
/* Stores the figures of the job; no effect on a job that was never measured. */
void profiles_keep(const struct job *job);
/* Hash over the tensors of the first declare: equal for equal names, dtypes and shapes in the same
 * order, and not 0. */
uint32_t profiles_layout(struct tensor *const *tensors, size_t count);

#endif
