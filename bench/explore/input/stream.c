/* The built-in streams, and arrival times of a trace. */
#include "bench/explore/input/stream.h"
#include "bench/sim/input/csv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_USUAL_COSTS 4.0, 0.3, 0.05, 30.0, 60.0
#define STREAM_SMALL_COSTS 0.4, 0.4, 0.1, 5.0, 3.5

static const struct trial_stream stream_table[] = {
    {"load 0.8",
     STREAM_POISSON,
     0.8,
     0,
     16,
     400,
     32,
     4,
     8,
     10,
     5,
     {1, 2, 4, 8},
     4,
     {STREAM_USUAL_COSTS}},
    {"load 1.1",
     STREAM_POISSON,
     1.1,
     0,
     16,
     400,
     32,
     4,
     8,
     10,
     5,
     {1, 2, 4, 8},
     4,
     {STREAM_USUAL_COSTS}},
    {"200 at once",
     STREAM_BATCH,
     0,
     0,
     1,
     200,
     32,
     4,
     8,
     10,
     5,
     {1, 2, 4, 8},
     4,
     {STREAM_USUAL_COSTS}},
    {"trace",
     STREAM_TRACE,
     0,
     0.05,
     1,
     400,
     64,
     4,
     8,
     10,
     5,
     {1, 2, 4, 8},
     4,
     {STREAM_USUAL_COSTS}},
    {"bench size",
     STREAM_POISSON,
     0.8,
     0,
     8,
     24,
     8,
     2,
     4,
     0.7,
     20,
     {1, 2, 4},
     3,
     {STREAM_SMALL_COSTS}},
    {"bench size, load 1.1",
     STREAM_POISSON,
     1.1,
     0,
     8,
     24,
     8,
     2,
     4,
     0.7,
     20,
     {1, 2, 4},
     3,
     {STREAM_SMALL_COSTS}},
};

size_t stream_defaults(struct trial_stream ret_streams[STREAMS_MAX])
{
    memcpy(ret_streams, stream_table, sizeof stream_table);
    return sizeof stream_table / sizeof *stream_table;
}

/* --- trace --- */

enum stream_column { STREAM_SUBMIT, STREAM_WORKERS, STREAM_CARRY };

static int stream_append(struct stream_trace *trace, double submit_s)
{
    if ((trace->count & (trace->count - 1)) == 0) {
        size_t room = trace->count ? trace->count * 2 : 1;
        double *times = reallocarray(trace->submit_s, room, sizeof *times);
        if (!times)
            return -ENOMEM;
        trace->submit_s = times;
    }
    trace->submit_s[trace->count++] = submit_s;
    return 0;
}

static int stream_read_row(struct table *table, struct stream_trace *trace)
{
    double submit_s, workers, carry;
    int error = table_number(table, STREAM_SUBMIT, 0, 1e10, &submit_s);
    if (error == 0)
        error = table_number(table, STREAM_WORKERS, 1, 1e6, &workers);
    if (error == 0)
        error = table_number(table, STREAM_CARRY, 0, 1, &carry);
    if (error < 0 || carry > 0 || workers < 2)
        return error;
    double first_s = trace->count ? trace->submit_s[0] : submit_s;
    if (trace->count && submit_s - first_s < trace->submit_s[trace->count - 1] - first_s)
        return table_complain(table, "expected rows in the order of submit_s");
    return stream_append(trace, submit_s);
}

int stream_read_trace(const char *path, struct stream_trace *ret_trace, char *error,
                      size_t error_bytes)
{
    static const char *const names[] = {"submit_s", "workers", "carry", NULL};
    struct stream_trace trace = {0};
    struct table table;
    int r = table_open(&table, path, names);
    while (r >= 0 && (r = table_next(&table)) == 1)
        if ((r = stream_read_row(&table, &trace)) < 0)
            break;
    if (r == 0 && trace.count == 0)
        r = table_complain(&table, "expected jobs with more than one worker and carry 0");
    for (size_t i = trace.count; i-- > 0;)
        trace.submit_s[i] -= trace.submit_s[0];
    if (r < 0) {
        snprintf(error, error_bytes, "%s", table.error);
        free(trace.submit_s);
    } else {
        *ret_trace = trace;
    }
    table_close(&table);
    return r < 0 ? r : 0;
}
