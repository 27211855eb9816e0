/* Random trials of a stream, and the search that ends bad trials. PURE: all numbers come from a
 * seed. */
#ifndef GRADPOOL_BENCH_EXPLORE_INPUT_TRIAL_H
#define GRADPOOL_BENCH_EXPLORE_INPUT_TRIAL_H

#include "bench/explore/input/stream.h"

#define TRIAL_RUNGS 4
#define TRIAL_WORKERS_MAX 16

struct trial {
    double submit_s;
    /* step time with w workers: split_s / w + serial_s + wide_s * w */
    double split_s, serial_s, wide_s;
    uint32_t workers_min, workers_max;
    double rungs[TRIAL_RUNGS];   /* number of steps at each rung; ascending */
    double reports[TRIAL_RUNGS]; /* a lower value is better */
    double quality;
    /* the trial is a stage: it reports nothing, does not grow, and runs all steps with
     * workers_min */
    bool is_stage;
    bool is_silent; /* the trial reports nothing before its end */
};

/* Draws trials, sorted by submit_s; the caller frees them. Only STREAM_TRACE uses `trace`. NULL: no
 * memory, or the trace has too few jobs. */
struct trial *trial_draw(const struct trial_stream *stream, uint64_t seed,
                         const struct stream_trace *trace);
/* Returns the steps per second; 0 for 0 workers. */
double trial_speed(const struct trial *trial, uint32_t workers);
/* Returns the number of steps of the whole training. */
double trial_steps(const struct trial *trial);

/* Asynchronous halving: a trial continues after a rung if its report is in the better half of the
 * reports that this rung has so far. */
struct trial_search {
    double *reports[TRIAL_RUNGS]; /* reports at each rung, sorted */
    size_t counts[TRIAL_RUNGS];
};

int trial_search_init(struct trial_search *search, size_t trials);
void trial_search_fini(struct trial_search *search);
/* Adds the report of a rung. Returns whether the trial continues. */
bool trial_search_keeps(struct trial_search *search, uint32_t rung, double value);

#endif
