/* Runs of all policies over streams, their rows, and the bars. */
#ifndef GRADPOOL_BENCH_EXPLORE_EXPLORE_H
#define GRADPOOL_BENCH_EXPLORE_EXPLORE_H

#include "bench/explore/decisions.h"
#include "bench/explore/policies.h"

struct explore_row {
    const struct trial_stream *stream;
    struct world_policy policy;
    uint32_t seeds;
    struct world_figures figures; /* means over the seeds; waits_over, rests_over: sums */
};

struct explore_rows {
    struct explore_row rows[POLICIES_MAX];
    size_t count;
};

/* All policies over one stream. `trace` is needed by a stream of a trace. A negative errno. */
int explore_run(const struct trial_stream *stream, const struct stream_trace *trace,
                struct explore_rows *ret_rows);
/* The stage of 8 among narrow jobs. */
int explore_run_stages(const struct trial_stream *stream, struct explore_rows *ret_rows);

/* A ratio between two policies, or a figure of one, and its limit. */
struct explore_bar {
    char text[128];
    double value, limit;
    bool is_least; /* value >= limit; else <= */
};

#define EXPLORE_BARS_MAX 16

/* The bars of a stream by its kind and load. Returns their number. */
size_t explore_bars(const struct explore_rows *rows, struct explore_bar ret_bars[EXPLORE_BARS_MAX]);
size_t explore_bars_of_stages(const struct explore_rows *rows,
                              struct explore_bar ret_bars[EXPLORE_BARS_MAX]);
struct explore_bar explore_bar_of_decisions(const struct decisions *decisions);
bool explore_bar_holds(const struct explore_bar *bar);

#endif
