/* pace: how long ranks take for a gradient. A scale for each rank, and one curve for all of the
 * durations in scales. PURE: the caller owns the states; a rank begins as all zeros, a curve with
 * pace_curve_init(). README.md: BK5, BK6. */
#ifndef GRADPOOL_PACKER_BACKUP_PACE_H
#define GRADPOOL_PACKER_BACKUP_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_BINS 96
#define PACE_OCTAVE 12        /* bins in a factor of two */
#define PACE_ONE 48           /* bin that begins at one scale */
#define PACE_KEEP 0.9         /* weight of former gradients in a scale, at each new one */
#define PACE_MEMORY_ROUNDS 30 /* memory of the curve */
#define PACE_OVERDUE 0.3      /* remaining part of a scale for a rank beyond its scale */

struct pace_rank {
    double time_ns;   /* of work, interrupted work included */
    double gradients; /* completed in that time */
};

/* Kaplan-Meier over bins of duration/scale. */
struct pace_curve {
    double keep; /* weight of former observations at each new one */
    double ended[PACE_BINS], observed[PACE_BINS];
    double survival[PACE_BINS + 1]; /* at the lower edge of each bin, and at the last upper one */
    bool is_stale;                  /* `survival` lacks an observation */
};

/* `workers`: observations in a round. */
void pace_curve_init(struct pace_curve *curve, uint32_t workers);
/* The rank completed a gradient. */
void pace_finished(struct pace_curve *curve, struct pace_rank *rank, double ns);
/* The rank ended a gradient before its completion. */
void pace_interrupted(struct pace_curve *curve, struct pace_rank *rank, double ns);
/* Mean time of a gradient; 0: not known. */
double pace_scale_ns(const struct pace_rank *rank);
/* Makes `survival` current. */
void pace_curve_fit(struct pace_curve *curve);
/* Share of gradients that take longer than `ratio` scales, by the last fit. */
double pace_survival(const struct pace_curve *curve, double ratio);

#endif
