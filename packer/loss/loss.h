/* loss: what sharing a lane costs the jobs on it. Pure functions of shares and periods; the rules
 * and where they come from stand in README.md. Not seen outside packer/ and its tests. */
#ifndef GRADPOOL_PACKER_LOSS_LOSS_H
#define GRADPOOL_PACKER_LOSS_LOSS_H

#include <stdbool.h>
#include <stddef.h>

#include "packer/packer.h"

#define LOSS_MARGIN 0.01

struct loss_rule {
    const char *name;
    double margin; /* added to every loss on a lane that is shared */
    /* Predicted loss of each job, 0 to 1, without the margin. Each period_ns is known. */
    void (*losses)(const struct packer_resident *jobs, size_t count, double *ret_losses);
    /* How many times its lane time job `self` is on the lane until its work is done. Negative: the
     * sums have lost their meaning. NULL: as `shared` has it. */
    double (*stretch)(const struct packer_resident *jobs, size_t count, size_t self);
    /* The most lane time a round, in ns, that one more job may take beside the residents so that
     * nobody exceeds his limit, the margin counted. Negative: the lane is closed to it. Loss only
     * grows with lane time, so that this one number answers for every piece. */
    double (*room_ns)(const struct packer_resident *residents, size_t count,
                      const struct packer_timing *job);
};

/* NULL: no rule of that name. */
const struct loss_rule *loss_rule_find(const char *name);

/* Round time of a job on this lane with nobody else on it (L3). */
double loss_alone_ns(const struct packer_timing *timing, double lane_ns);

/* Share of the lane that it takes while nobody else does: 0 to 1. */
double loss_share(const struct packer_resident *job);

/* The most lane time with which loss_alone_ns() stays within the limit `loss`. */
double loss_alone_room_ns(const struct packer_timing *timing, double loss);

/* The most lane time of a job so that its share of the lane is at most `share`. */
double loss_share_room_ns(const struct packer_timing *timing, double share);

/* loss_limit_ppm as a fraction below 1. */
double loss_limit(const struct packer_timing *timing);

extern const struct loss_rule loss_shared;

#endif
