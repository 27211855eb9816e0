/* Residents: which measured jobs share which lanes, and their predicted losses, for the packer and
 * for views. A snapshot: made, read, freed. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_NEIGHBOUR_H
#define GRADPOOL_COORDINATOR_PLACEMENT_NEIGHBOUR_H

#include "packer/packer.h"
#include "svc/coordinator/job/job.h"

/* Sorted by lane, then job. */
struct residents {
    uint32_t *lanes;
    struct packer_resident *jobs;
    double *losses; /* predicted losses, 0 to 1; NULL: not computed */
    size_t count;
};

/* Gathers all jobs with a known period, except `except` (or NULL), on lanes where they have pieces;
 * also idle jobs that were never measured, without lane time. -ENOMEM. */
int residents_gather(const struct service *s, const struct job *except,
                     struct residents *ret_residents);
/* Sets `losses` by the service's policy, or by `shared` if the policy has no rule. */
int residents_predict(const struct service *s, struct residents *residents);
void residents_free(struct residents *residents);
/* Number of residents of one lane, and the index of the first. */
size_t residents_of_lane(const struct residents *residents, uint32_t lane, size_t *ret_first);
/* Part of the job's measured loss that its shared lanes explain, at most the whole loss (K106). */
uint32_t job_shared_loss_ppm(const struct job *job);
/* Whether that part is measured: the job is, and some lane has counted rounds of it. */
bool job_knows_shared_loss(const struct job *job);
/* Predicted loss of the job on that lane, or (lane 0) on the worst of its lanes; 0: not known. */
uint32_t residents_loss_ppm(const struct residents *residents, uint32_t job_id, uint32_t lane);
/* Whether the job has a prediction, maybe 0: it is measured and has a lane. */
bool residents_predicted(const struct residents *residents, const struct job *job);

/* Times of the job without other jobs, and its loss limit; period_ns 0: not measured. */
struct packer_timing job_timing(const struct job *job);
/* Lane time of a round over all lanes; 0: not known. */
uint64_t job_lane_ns(const struct job *job);
/* Whether the job has not begun a round for a minute. */
bool job_is_idle(const struct job *job);
/* Like job_timing(); for an idle job that was never measured, times of a job that needs nothing. */
struct packer_timing job_resident_timing(const struct job *job);
/* The lowest loss limit of service, tenant and job; 0: none is named. */
uint32_t job_limit_ppm(const struct job *job);

#endif
