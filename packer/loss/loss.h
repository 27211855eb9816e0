/* loss: predicts the loss of the jobs that share a lane. Pure functions of shares and periods.
 * RULES.md has the rules, L1 to L8. Only packer/ and its tests use this header. */
#ifndef GRADPOOL_PACKER_LOSS_LOSS_H
#define GRADPOOL_PACKER_LOSS_LOSS_H

#include <stdbool.h>
#include <stddef.h>

#include "packer/packer.h"

#define LOSS_MARGIN 0.01

struct loss_rule {
    const char *name;
    double margin; /* margin that is added to every loss on a shared lane */
    /* Computes the predicted loss of each job, 0 to 1, without the margin. The caller passes only
     * jobs with a known period_ns. */
    void (*losses)(const struct packer_resident *jobs, size_t count, double *ret_losses);
    /* Computes the factor by which other jobs lengthen the work of job `self` on the lane: the time
     * until the work ends, divided by its lane time. Negative: the sums overflowed. NULL: the
     * function of `shared` is used. */
    double (*stretch)(const struct packer_resident *jobs, size_t count, size_t self);
    /* Computes the largest lane time of a round, in ns, for one more job beside the residents. With
     * this time, no job's loss plus margin exceeds its limit. Negative: the job may not use the
     * lane.
     * Loss grows with lane time, so this one number suffices for pieces of any size. */
    double (*room_ns)(const struct packer_resident *residents, size_t count,
                      const struct packer_timing *job);
};

/* Finds a rule by name, or returns NULL. */
const struct loss_rule *loss_rule_find(const char *name);

/* Returns the round time of a job with `lane_ns` on a lane without other jobs (L3). */
double loss_alone_ns(const struct packer_timing *timing, double lane_ns);

/* Returns the share of a lane without other jobs that the job uses: 0 to 1. */
double loss_share(const struct packer_resident *job);

/* Returns the largest lane time with which the job loses at most `loss` on a lane without other
 * jobs (L3). */
double loss_alone_room_ns(const struct packer_timing *timing, double loss);

/* Returns the largest lane time for which the job's share of the lane is at most `share`. */
double loss_share_room_ns(const struct packer_timing *timing, double share);

/* Returns loss_limit_ppm minus spent_ppm, as a fraction below 1. */
double loss_limit(const struct packer_timing *timing);

extern const struct loss_rule loss_shared;

#endif
