/* Drawn trials of a stream, and the search that ends bad ones. PURE: everything from a seed. */
#ifndef GRADPOOL_BENCH_EXPLORE_INPUT_TRIAL_H
#define GRADPOOL_BENCH_EXPLORE_INPUT_TRIAL_H

#include "bench/explore/input/stream.h"

#define TRIAL_RUNGS 4
#define TRIAL_WORKERS_MAX 16

struct trial {
    double submit_s;
    double split_s, serial_s, wide_s; /* a step takes split/w + serial + wide w */
    uint32_t workers_min, workers_max;
    double rungs[TRIAL_RUNGS];   /* steps of each; rises */
    double reports[TRIAL_RUNGS]; /* the lower, the better */
    double quality;
    bool is_stage;  /* no reports, no growth: runs its steps with workers_min */
    bool is_silent; /* reports nothing before its end */
};

/* Trials in the order of submit_s; the caller frees them. `trace` is read by STREAM_TRACE alone.
 * NULL: no memory, or a trace with fewer jobs. */
struct trial *trial_draw(const struct trial_stream *stream, uint64_t seed,
                         const struct stream_trace *trace);
/* Steps a second; 0 workers: 0. */
double trial_speed(const struct trial *trial, uint32_t workers);
/* Steps of the whole training. */
double trial_steps(const struct trial *trial);

/* Asynchronous halving: at a rung the better half goes on, judged among the reports so far. */
struct trial_search {
    double *reports[TRIAL_RUNGS]; /* sorted */
    size_t counts[TRIAL_RUNGS];
};

int trial_search_init(struct trial_search *search, size_t trials);
void trial_search_fini(struct trial_search *search);
/* Adds the report of a rung; true: the trial goes on. */
bool trial_search_keeps(struct trial_search *search, uint32_t rung, double value);

#endif
