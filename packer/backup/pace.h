/* pace: durations of gradients. Each rank has a mean time, its scale. One curve describes the
 * durations of all ranks, each divided by the scale of its rank. PURE: the caller owns the states;
 * a rank is all zeros at first, a curve is initialized by pace_curve_init(). README.md: BK5,
 * BK6. */
#ifndef GRADPOOL_PACKER_BACKUP_PACE_H
#define GRADPOOL_PACKER_BACKUP_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_BINS 96
#define PACE_OCTAVE 12 /* number of bins for a factor of two */
#define PACE_ONE 48    /* bin whose lower edge is one scale */
/* the weights of a rank's earlier gradients are multiplied by this factor at each new gradient */
#define PACE_KEEP 0.9
#define PACE_MEMORY_ROUNDS 30 /* number of rounds that the curve remembers */
/* assumed remaining time of a gradient that already takes longer than the scale of its rank, in
 * units of this scale */
#define PACE_OVERDUE 0.3

struct pace_rank {
    double time_ns;   /* computing time of the rank's gradients, including interrupted gradients */
    double gradients; /* number of gradients completed in that time */
};

/* Kaplan-Meier estimate over bins of duration/scale. */
struct pace_curve {
    /* the weights of earlier observations are multiplied by this factor at each new observation */
    double keep;
    double ended[PACE_BINS], observed[PACE_BINS];
    /* fraction of the gradients that last longer than the lower edge of each bin; the last value is
     * for the upper edge of the last bin */
    double survival[PACE_BINS + 1];
    bool is_stale; /* whether `survival` lacks an observation */
};

/* Starts a curve without observations. `workers`: number of observations in a round. */
void pace_curve_init(struct pace_curve *curve, uint32_t workers);
/* Adds a completed gradient of the rank. */
void pace_finished(struct pace_curve *curve, struct pace_rank *rank, double ns);
/* Adds a gradient that the rank ended before its completion. */
void pace_interrupted(struct pace_curve *curve, struct pace_rank *rank, double ns);
/* Returns the mean time of a gradient; 0: unknown. */
double pace_scale_ns(const struct pace_rank *rank);
/* Computes `survival` from all observations. */
void pace_curve_fit(struct pace_curve *curve);
/* Returns the fraction of gradients that take longer than `ratio` times the scale of their rank, as
 * computed by the last fit. */
double pace_survival(const struct pace_curve *curve, double ratio);

#endif
