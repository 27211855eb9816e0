/* Which measured jobs share which lanes, and what that costs them: what the packer is told of
 * lanes, and what operators are shown. A snapshot: made, looked at, freed. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_NEIGHBOUR_H
#define GRADPOOL_COORDINATOR_PLACEMENT_NEIGHBOUR_H

#include "packer/packer.h"
#include "svc/coordinator/job/job.h"

/* By lane, then job; each lane's jobs lie end to end. */
struct residents {
    uint32_t *lanes;
    struct packer_resident *jobs;
    double *losses; /* predicted, 0 to 1; NULL: not asked for */
    size_t count;
};

/* All jobs but `except` (may be NULL) whose period is known, on lanes where they have pieces; idle
 * ones of which nothing is known, too, without lane time. -ENOMEM. */
int residents_gather(const struct service *s, const struct job *except,
                     struct residents *ret_residents);
/* Fills `losses` by the rule of the service's policy, or of `shared` where that has none. */
int residents_predict(const struct service *s, struct residents *residents);
void residents_free(struct residents *residents);
/* Those of one lane: how many, and where the first stands. */
size_t residents_of_lane(const struct residents *residents, uint32_t lane, size_t *ret_first);
/* Of a job's measured loss, as much as its lanes explain, at most (K106). */
uint32_t job_shared_loss_ppm(const struct job *job);
/* Whether that is measured: some lane of the job shares, and has counted rounds of it. */
bool job_knows_shared_loss(const struct job *job);
/* Predicted loss of a job on that lane, or (lane 0) on the worst of its lanes; 0: not known. */
uint32_t residents_loss_ppm(const struct residents *residents, uint32_t job_id, uint32_t lane);
/* Whether that loss is a prediction, be it 0: the job is measured and has a lane. */
bool residents_predicted(const struct residents *residents, const struct job *job);

/* How it runs alone, and what it may lose; period_ns 0: it is not measured. */
struct packer_timing job_timing(const struct job *job);
/* Lane time a round, on all its lanes together; 0: not known. */
uint64_t job_lane_ns(const struct job *job);
/* It has not begun a round for a minute, though it could have. */
bool job_is_idle(const struct job *job);
/* job_timing(), or that of one who takes nothing. */
struct packer_timing job_resident_timing(const struct job *job);
/* The strictest of what the service, its tenant and the job itself have named; 0: none has. */
uint32_t job_limit_ppm(const struct job *job);

#endif
