/* Speed of a job by its number w of workers (F1): 1/f = T(1) (a/w + b + d w) + c w/lanes; no
 * coefficient is negative. The trials of a study share the shape (a, b, d); each job has its own
 * T(1) and c. */
#ifndef GRADPOOL_PACKER_ELASTIC_CURVE_H
#define GRADPOOL_PACKER_ELASTIC_CURVE_H

#include <stdint.h>

#define CURVE_POINTS 8 /* maximum number of worker counts with a stored point */

/* Step time of w workers divided by the step time of one worker: split/w + serial + wide w. The
 * three parts are a, b and d of F1, and have the sum 1. */
struct curve_shape {
    double split, serial, wide; /* parts a, b and d of the curve (F1) */
};

/* The shape of the speed curve that all jobs of a study share, fitted to all their points. */
struct curve_study {
    uint32_t id,
        jobs; /* jobs: number of jobs of the study that have not ended (counted by roster.c) */
    double sums[6]; /* weighted products of all equations: aa, ab, ad, bb, bd, dd */
    struct curve_shape shape;
};

struct curve_point {
    uint32_t workers;
    double step_s; /* median step time measured with this number of workers, without lane time */
};

struct curve {
    struct curve_study *study;
    struct curve_point points[CURVE_POINTS];
    uint32_t count;
    double one_s;   /* measured step time of one worker, T(1), in seconds; 0: unknown */
    double lane_s;  /* c: lane time of one worker in a step */
    uint32_t lanes; /* number of lanes; 0: lane time is ignored */
};

/* Sets the initial shape: nine tenths of the step time of one worker are split among the workers,
 * and one tenth is serial. */
void curve_study_init(struct curve_study *study, uint32_t id);
/* Begins a curve without points. The study must exist longer than the curve. */
void curve_init(struct curve *curve, struct curve_study *study);

/* Adds a measured step time with a number of workers. Fits T(1) and, from the second number of
 * workers on, the shape of the study. A time that is not positive is ignored. */
void curve_add(struct curve *curve, uint32_t workers, double step_s);

/* Returns the speed relative to one worker, f(w)/f(1); it is 0 for 0 workers. */
double curve_relative(const struct curve *curve, uint32_t workers);
/* Returns the seconds of a step with this number of workers; 0: T(1) is unknown. */
double curve_step_s(const struct curve *curve, uint32_t workers);

#endif
