/* Residents: the measured jobs on each lane, with their predicted losses, for the packer and for
 * views. The list is a copy of the present state. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_NEIGHBOUR_H
#define GRADPOOL_COORDINATOR_PLACEMENT_NEIGHBOUR_H

#include "packer/packer.h"
#include "svc/coordinator/job/job.h"

/* The residents, sorted by lane and then by job. */
struct residents {
    uint32_t *lanes;
    struct packer_resident *jobs;
    double *losses; /* predicted losses, from 0 to 1; NULL: not computed */
    size_t count;
};

/* Lists all jobs with a known period on the lanes where they have pieces. `except` (or NULL) is
 * left out. An idle job that was never measured is listed without lane time. Returns 0 or
 * -ENOMEM. */
int residents_gather(const struct service *s, const struct job *except,
                     struct residents *ret_residents);
/* Computes `losses` by the service's policy, or by the policy `shared` if the service's policy
 * predicts no losses. */
int residents_predict(const struct service *s, struct residents *residents);
void residents_free(struct residents *residents);
/* Returns the number of residents of one lane, and the index of the first. */
size_t residents_of_lane(const struct residents *residents, uint32_t lane, size_t *ret_first);
/* Returns the part of the job's measured loss that comes from sharing lanes. It is at most the
 * whole loss (K106). */
uint32_t job_shared_loss_ppm(const struct job *job);
/* Returns whether job_shared_loss_ppm() is known: the job is measured, and a lane has counted
 * rounds of the job. */
bool job_knows_shared_loss(const struct job *job);
/* Returns the predicted loss of the job on `lane`, or its largest predicted loss on any lane if
 * `lane` is 0. Returns 0 if no prediction exists. */
uint32_t residents_loss_ppm(const struct residents *residents, uint32_t job_id, uint32_t lane);
/* Returns whether the job is measured and has a lane, so that a prediction exists. The predicted
 * loss may be 0. */
bool residents_predicted(const struct residents *residents, const struct job *job);

/* Returns the times of the job without other jobs, and its loss limit. period_ns 0: not
 * measured. */
struct packer_timing job_timing(const struct job *job);
/* Returns the lane time of a round, summed over all lanes; 0: unknown. */
uint64_t job_lane_ns(const struct job *job);
/* Returns the lane time of a round of all tensors; 0: unknown, or the job has only tables. Tensors
 * may move to other lanes; shards of tables may not. */
uint64_t job_tensors_ns(const struct job *job);
bool job_is_idle(const struct job *job);
/* Like job_timing(), except for an idle job that was never measured: such a job gets the times of a
 * job without any work. */
struct packer_timing job_resident_timing(const struct job *job);
/* Returns the lowest of the loss limits of the service, the tenant and the job, in millionths; 0:
 * no limit. */
uint32_t job_limit_ppm(const struct job *job);

#endif
