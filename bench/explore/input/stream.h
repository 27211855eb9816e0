/* Streams of trials for `explore --simulate`: what arrives, on how many slots, at which costs. The
 * jobs, rule and cluster of EPS are not public: all of this is our own reconstruction. */
#ifndef GRADPOOL_BENCH_EXPLORE_INPUT_STREAM_H
#define GRADPOOL_BENCH_EXPLORE_INPUT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAM_NAME_BYTES 48
#define STREAM_STATIC_MAX 4
#define STREAMS_MAX 16

enum stream_arrivals { STREAM_POISSON, STREAM_BATCH, STREAM_TRACE };

struct stream_costs {
    double start_s, preload_start_s; /* from START to a worker that helps */
    double resize_s;                 /* stop of a job by a worker that joins or leaves */
    double restart_s;                /* stop of a job that restarts from a snapshot */
    double hold_s;                   /* least hold time of jobs that restart */
};

struct trial_stream {
    char name[STREAM_NAME_BYTES];
    enum stream_arrivals arrivals;
    double load;    /* STREAM_POISSON: asked slot time over slots */
    double scale;   /* STREAM_TRACE: of the trace's times */
    uint32_t burst; /* trials that arrive together */
    uint32_t trials, slots;
    uint32_t ask; /* workers of a trial for which the load is computed */
    uint32_t workers_max;
    double minutes; /* shortest whole length with one worker; the longest is six times that */
    uint32_t seeds;
    uint32_t static_w[STREAM_STATIC_MAX], static_count;
    struct stream_costs costs;
};

/* The streams of the bars, in their order. Returns their number. */
size_t stream_defaults(struct trial_stream ret_streams[STREAMS_MAX]);

/* Reads streams in the JSON form of `--streams`. A negative errno with a text in `error`. */
int stream_read(const char *path, struct trial_stream ret_streams[STREAMS_MAX], size_t *ret_count,
                char *error, size_t error_bytes);

/* Times of a trace, in seconds from the first; the caller frees `submit_s`. */
struct stream_trace {
    double *submit_s;
    size_t count;
};

/* The jobs of a CSV trace with more than one worker that began inside its window. A negative errno
 * with a text in `error`. */
int stream_read_trace(const char *path, struct stream_trace *ret_trace, char *error,
                      size_t error_bytes);

#endif
