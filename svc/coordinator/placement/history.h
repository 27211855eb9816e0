/* Measurements of earlier runs, used when a job runs again (K16). */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_HISTORY_H
#define GRADPOOL_COORDINATOR_PLACEMENT_HISTORY_H

#include "svc/coordinator/job/job.h"

#define PROFILES_MAX 1024 /* maximum number of stored jobs; the oldest is removed */
/* maximum number of tensors of a job whose lane times are stored */
#define PROFILES_TENSORS_MAX 4096

struct service;

int profiles_create(struct service *s);
int profiles_restore(struct service *s, const struct store_profile *row);
void profiles_destroy(struct service *s);
/* Sets the job's profile, and the lane times of `tensors`, from an earlier run. The caller has set
 * `job->terms->layout`. */
void profiles_recall(struct job *job, struct tensor *const *tensors, size_t count);
/* Stores the job's measurements. Does nothing if the job was never measured. */
void profiles_keep(const struct job *job);
/* Returns a hash of the tensors in the first declare. Names, dtypes, shapes and their order
 * determine the hash. The hash is never 0. */
uint32_t profiles_layout(struct tensor *const *tensors, size_t count);

#endif
