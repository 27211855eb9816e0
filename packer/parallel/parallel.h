/* parallel: the number of workers of a stage, chosen by trials. The rule tries 1, 2, 4, ... workers
 * from the smallest number to the largest one, and stops when two trials of a number are 5 % worse
 * than the best. PURE: the caller owns the state and measures times.
 *
 * FlexPS tries 1, 2, 3, ... workers for 10 iterations each (its public source), and stops at the
 * first number that is slower. The powers of two, the 5 %, the second trial, the two dropped steps,
 * the goal "frugal" and the new search after a drift are decisions of gradpool. */
#ifndef GRADPOOL_PACKER_PARALLEL_H
#define GRADPOOL_PACKER_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PARALLEL_STEPS 12  /* number of steps of a trial */
#define PARALLEL_DROPPED 2 /* number of first steps of a trial that do not count */
#define PARALLEL_TRIALS 34 /* maximum number of trials of a search */
/* A trial whose cost is above this multiple of the best cost is repeated once, because other load
 * may have slowed down its hosts. If both trials are worse, the search ends. */
#define PARALLEL_WORSE 1.05
/* a new search begins when the time of the chosen number of workers changes by this fraction */
#define PARALLEL_DRIFT 0.25

enum parallel_goal {
    PARALLEL_FASTEST, /* smallest time of a unit of work */
    /* smallest product of the time of a unit of work and the number of workers */
    PARALLEL_FRUGAL,
};

struct parallel_trial {
    uint32_t workers;
    double unit_ns; /* time in which all workers of the stage complete a unit of work */
};

struct parallel {
    enum parallel_goal goal;
    uint32_t least, most;
    struct parallel_trial trials[PARALLEL_TRIALS];
    uint32_t count;  /* number of measured trials; a repeated trial counts once */
    bool repeats;    /* the last trial is repeated */
    uint32_t chosen; /* chosen number of workers; 0: the search has not ended */
    double chosen_ns;
};

/* Begins a search among `least` to `most` workers; 1 <= least <= most. */
void parallel_init(struct parallel *p, enum parallel_goal goal, uint32_t least, uint32_t most);
/* Returns the number of workers with which the stage runs next. */
uint32_t parallel_workers(const struct parallel *p);
/* Returns whether the next run is a trial of PARALLEL_STEPS steps. */
bool parallel_is_trial(const struct parallel *p);
/* Returns the median of the times of the steps, without the first PARALLEL_DROPPED steps; 0: too
 * few steps. `times` is sorted in place. */
double parallel_median(double *times, size_t count);
/* Adds the time of a unit with `workers` workers. During a search, a time for the number of workers
 * in trial ends the trial. After the search, a new search begins when the time for the chosen
 * number of workers has drifted. Times for other numbers of workers, and times of 0, are
 * ignored. */
void parallel_measured(struct parallel *p, uint32_t workers, double unit_ns);

#endif
