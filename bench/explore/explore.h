/* Runs of all policies over streams, their rows, and the bars. */
#ifndef GRADPOOL_BENCH_EXPLORE_EXPLORE_H
#define GRADPOOL_BENCH_EXPLORE_EXPLORE_H

#include "bench/explore/decisions.h"
#include "bench/explore/policies.h"

struct explore_row {
    const struct trial_stream *stream;
    struct world_policy policy;
    uint32_t seeds;
    /* means over the seeds; the counts waits_over and rests_over are sums */
    struct world_figures figures;
};

struct explore_rows {
    struct explore_row rows[POLICIES_MAX];
    size_t count;
};

/* Runs all policies over one stream. A stream of a trace needs `trace`. Returns a negative
 * errno. */
int explore_run(const struct trial_stream *stream, const struct stream_trace *trace,
                struct explore_rows *ret_rows);
/* Runs the stream with stages of 8 workers among jobs with few workers (narrow jobs). */
int explore_run_stages(const struct trial_stream *stream, struct explore_rows *ret_rows);

/* A ratio of two policies, or a figure of one policy, with the limit of this value. */
struct explore_bar {
    char text[128];
    double value, limit;
    bool is_least; /* true: the limit is a minimum of the value; false: the limit is a maximum */
};

#define EXPLORE_BARS_MAX 16

/* Computes the bars for the kind and load of a stream. Returns their number. */
size_t explore_bars(const struct explore_rows *rows, struct explore_bar ret_bars[EXPLORE_BARS_MAX]);
size_t explore_bars_of_stages(const struct explore_rows *rows,
                              struct explore_bar ret_bars[EXPLORE_BARS_MAX]);
struct explore_bar explore_bar_of_decisions(const struct decisions *decisions);
bool explore_bar_holds(const struct explore_bar *bar);

#endif
