/* Residents are measured jobs on lanes. Lists which jobs share which lanes, with their predicted
 * losses, for the packer and for views. The list is a copy of the present state. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_NEIGHBOUR_H
#define GRADPOOL_COORDINATOR_PLACEMENT_NEIGHBOUR_H

#include "packer/packer.h"
#include "svc/coordinator/job/job.h"

/* The residents, sorted by lane, then by job. */
struct residents {
    uint32_t *lanes;
    struct packer_resident *jobs;
    double *losses; /* predicted losses from 0 to 1; NULL: not computed */
    size_t count;
};

/* Lists all jobs with a known period, except `except` (or NULL), on the lanes where they have
 * pieces. Idle jobs that were never measured are listed as well, without lane time. Returns 0 or
 * -ENOMEM. */
int residents_gather(const struct service *s, const struct job *except,
                     struct residents *ret_residents);
/* Computes `losses` by the service's policy, or by `shared` if the policy has no rule. */
int residents_predict(const struct service *s, struct residents *residents);
void residents_free(struct residents *residents);
/* Returns the number of residents of one lane, and the index of the first. */
size_t residents_of_lane(const struct residents *residents, uint32_t lane, size_t *ret_first);
/* Returns the part of the job's measured loss that its shared lanes explain; at most the whole loss
 * (K106). */
uint32_t job_shared_loss_ppm(const struct job *job);
/* Returns whether that part is known: the job is measured, and a lane has counted rounds of it. */
bool job_knows_shared_loss(const struct job *job);
/* Returns the predicted loss of the job on that lane, or for lane 0 on the worst of its lanes; 0:
 * unknown. */
uint32_t residents_loss_ppm(const struct residents *residents, uint32_t job_id, uint32_t lane);
/* Returns whether the job has a prediction, which may be 0: it is measured and has a lane. */
bool residents_predicted(const struct residents *residents, const struct job *job);

/* Returns the times of the job without other jobs, and its loss limit. period_ns 0: not
 * measured. */
struct packer_timing job_timing(const struct job *job);
/* Returns the lane time of a round over all lanes; 0: unknown. */
uint64_t job_lane_ns(const struct job *job);
/* Returns whether the job has not begun a round for a minute. */
bool job_is_idle(const struct job *job);
/* Like job_timing(). For an idle job that was never measured, returns the times of a job that needs
 * nothing. */
struct packer_timing job_resident_timing(const struct job *job);
/* Returns the lowest of the loss limits of service, tenant and job; 0: none is set. */
uint32_t job_limit_ppm(const struct job *job);

#endif
