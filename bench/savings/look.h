/* The service's state from `gradpool status --json` and `gradpool jobs --json`. */
#ifndef GRADPOOL_BENCH_SAVINGS_LOOK_H
#define GRADPOOL_BENCH_SAVINGS_LOOK_H

#include "bench/lib/own_service.h"

#include <stdbool.h>

#define LOOK_LANES_MAX 1024

struct look {
    uint64_t at_ns;
    size_t lanes_count;
    struct look_lane {
        uint32_t lane;       /* number of the lane, constant over time */
        uint32_t aggregator; /* aggregator of the lane */
        uint32_t tasks;      /* number of tasks on the lane */
        /* true: the lane is open or closing, so it has a core, with or without tasks */
        bool is_open;
        uint64_t cpu_ns;     /* CPU time of the lane's thread */
    } lanes[LOOK_LANES_MAX]; /* in the order of `gradpool status` */
};

/* Reads the state of all lanes. Returns 0, or a negative errno with a text on standard error. */
int look_at_lanes(const struct service *service, struct look *ret_look);

struct look_job {
    char name[64];
    uint64_t alone_period_ns; /* round time without other jobs; 0: not measured */
    bool has_prediction;      /* the prediction is valid, and may be 0 */
    uint32_t predicted_loss_ppm;
    uint64_t lane_ns; /* lane time of a round; 0: unknown */
};
/* Reads up to `most` jobs. Returns their number, or a negative errno. */
int look_at_jobs(const struct service *service, struct look_job *ret_jobs, size_t most);

#define LOOK_EVENTS_MAX 64
struct look_events {
    struct look_event {
        double at_s; /* seconds since the start of the service */
        char kind[32], text[256];
    } events[LOOK_EVENTS_MAX];
    size_t count;
};
/* Reads the last decisions of growth, from `gradpool top --json`. Returns a negative errno, with a
 * text. */
int look_at_events(const struct service *service, struct look_events *ret_events);

/* Reads the bytes of a job on each lane, at most `most` rows. Returns their number, or a negative
 * errno. */
struct look_share {
    uint32_t lane;
    uint64_t bytes;
};
int look_at_shares(const struct service *service, const char *job, struct look_share *ret_shares,
                   size_t most);
/* Reads the numbers of a job's tasks. Returns their count, or a negative errno. */
int look_at_tasks(const struct service *service, const char *job, uint32_t *ret_tasks, size_t most);
/* Reads the processes of aggregators that are up, at most `most`. Returns their number, or a
 * negative errno. */
int look_at_aggregators(const struct service *service, pid_t *ret_pids, size_t most);

/* Reads the counts of the tables of a job, at most `most`. Returns their number, or a negative
 * errno; a table without counts is an error. */
struct look_table {
    uint64_t rows, bytes, births, pushed_keys;
};
int look_at_tables(const struct service *service, const char *job, struct look_table *ret_tables,
                   size_t most);

/* Parses the output of a command. -ENODATA: no lanes; -E2BIG: too many; -EBADMSG: not JSON. */
int look_parse_lanes(const char *text, struct look *ret_look);
int look_parse_aggregators(const char *text, pid_t *ret_pids, size_t most);
int look_parse_jobs(const char *text, struct look_job *ret_jobs, size_t most);
int look_parse_shares(const char *text, struct look_share *ret_shares, size_t most);
int look_parse_tasks(const char *text, uint32_t *ret_tasks, size_t most);
int look_parse_tables(const char *text, struct look_table *ret_tables, size_t most);
int look_parse_events(const char *text, struct look_events *ret_events);

/* Returns the CPU time of all lanes between two measurements, and the CPU time of the busiest
 * lane. Lanes are matched by number, because aggregators start and end. */
double look_cpu_s(const struct look *first, const struct look *last, double *ret_most_s);

#endif
