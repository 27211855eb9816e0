/* Streams of trials for `explore --simulate`: arrivals, number of slots, costs. The jobs, the rule
 * and the cluster of the EPS paper are not public, so these streams are our own reconstruction. */
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
    double start_s, preload_start_s; /* time from START until the worker computes */
    double resize_s;                 /* time for which a job pauses when a worker joins or leaves */
    /* time for which a job pauses when it restarts from a snapshot */
    double restart_s;
    double hold_s; /* minimum hold time of jobs that restart */
};

struct trial_stream {
    char name[STREAM_NAME_BYTES];
    enum stream_arrivals arrivals;
    double load;    /* STREAM_POISSON: requested slot time divided by the number of slots */
    double scale;   /* for STREAM_TRACE: factor by which the trace's times are multiplied */
    uint32_t burst; /* number of trials that arrive together */
    uint32_t trials, slots;
    uint32_t ask; /* number of workers with which the load is computed */
    uint32_t workers_max;
    /* shortest length of a whole trial with one worker; the longest is six times as long */
    double minutes;
    uint32_t seeds;
    uint32_t static_w[STREAM_STATIC_MAX], static_count;
    struct stream_costs costs;
};

/* Returns the built-in streams, and their number. */
size_t stream_defaults(struct trial_stream ret_streams[STREAMS_MAX]);

/* Reads streams in the JSON format of `--streams`. Returns a negative errno, with a text in
 * `error`. */
int stream_read(const char *path, struct trial_stream ret_streams[STREAMS_MAX], size_t *ret_count,
                char *error, size_t error_bytes);

/* Arrival times of a trace, in seconds after the first arrival. The caller frees `submit_s`. */
struct stream_trace {
    double *submit_s;
    size_t count;
};

/* Reads arrivals from a CSV trace. A job counts if the job has more than one worker and was
 * submitted within the window of the trace. Returns a negative errno, with a text in `error`. */
int stream_read_trace(const char *path, struct stream_trace *ret_trace, char *error,
                      size_t error_bytes);

#endif
