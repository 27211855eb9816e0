/* Speed of a job by its number of workers (F1): 1/f = T(1) (a/w + b + d w) + c w/lanes, none
 * negative. The trials of a study share the shape (a, b, d); each job has its own T(1) and c. */
#ifndef GRADPOOL_PACKER_ELASTIC_CURVE_H
#define GRADPOOL_PACKER_ELASTIC_CURVE_H

#include <stdint.h>

#define CURVE_POINTS 8 /* numbers of workers that a job remembers */

/* Step time relative to one worker; the sum of the three is 1. */
struct curve_shape {
    double split, serial, wide; /* a, b, d */
};

/* The shape of a study, from the points of all its jobs. */
struct curve_study {
    uint32_t id;
    double sums[6]; /* weighted products of the rows of all jobs: aa, ab, ad, bb, bd, dd */
    struct curve_shape shape;
};

struct curve_point {
    uint32_t workers;
    double step_s; /* median of some rounds, without lane time */
};

struct curve {
    struct curve_study *study;
    struct curve_point points[CURVE_POINTS];
    uint32_t count;
    double one_s;   /* T(1); 0: not measured */
    double lane_s;  /* c: lane time of a worker in a step */
    uint32_t lanes; /* 0: lane time does not count */
};

/* The first shape: 0.9 of T(1) is split among the workers, 0.1 is serial. */
void curve_study_init(struct curve_study *study, uint32_t id);
/* The study outlives the curve. */
void curve_init(struct curve *curve, struct curve_study *study);

/* A measured step time with so many workers; fits T(1) and, from the second number of workers on,
 * the shape of the study. A point that is not positive is ignored. */
void curve_add(struct curve *curve, uint32_t workers, double step_s);

/* Steps a second in one-worker speeds, f(w)/f(1); 0 workers: 0. */
double curve_relative(const struct curve *curve, uint32_t workers);
/* Seconds a step; 0: T(1) is not known. */
double curve_step_s(const struct curve *curve, uint32_t workers);

#endif
