/* Runs the same jobs alone, on dedicated servers, and on shared lanes, in turns. Stores the
 * results. */
#ifndef GRADPOOL_BENCH_SAVINGS_SAVINGS_H
#define GRADPOOL_BENCH_SAVINGS_SAVINGS_H

#include "bench/savings/turn.h"

#define SAVINGS_TURNS_MAX 100
#define SAVINGS_PARTS 150 /* number of parts of a turn in the chart */
/* number of parts in the planned length of a turn; the remaining parts are for jobs that end
 * later */
#define SAVINGS_PARTS_PLANNED 120

enum savings_setting {
    SAVINGS_ALONE,     /* one job at a time, with as many lanes as workers */
    SAVINGS_DEDICATED, /* all jobs, each with as many lanes as workers */
    SAVINGS_SHARED,    /* all jobs, with lanes shared by the policy */
    SAVINGS_SETTINGS
};

/* Figures of one setting over its turns. */
struct savings_series {
    double period_ns[PLAN_JOBS_MAX][SAVINGS_TURNS_MAX];
    size_t periods[PLAN_JOBS_MAX];
    size_t turns;
    double offered[SAVINGS_TURNS_MAX], busiest[SAVINGS_TURNS_MAX];
    double allocated_s, used_s, seconds; /* sums over all turns */
    struct savings_part {                /* values of one part of a turn, summed over all turns */
        double allocated, used;
        uint32_t used_turns; /* number of turns with known used cores */
    } parts[SAVINGS_PARTS];
};

struct savings {
    struct plan plan;
    const char *policy, *transport; /* transport NULL: the client's choice */
    double load;                    /* lane time that all jobs together need, in cores */
    uint32_t alternations, alone_passes;
    /* all jobs are profiled at the same time, which is quicker and less exact */
    bool profiles_together;
    bool is_json;
    const char *report; /* path of a page that is written at the end; NULL: none */

    uint32_t cores, lanes_per_core;
    struct service dedicated, shared;
    /* lane time of a pushed byte, calibrated over all kinds of tensors together */
    double lane_ns_a_byte;
    bool is_known[PLAN_JOBS_MAX]; /* whether the service has measured the job */
    uint32_t profile_turns;
    struct savings_series series[SAVINGS_SETTINGS];
    struct savings_predicted {
        double sum;     /* sum of losses over the shared turns */
        uint32_t turns; /* number of shared turns with a prediction */
    } predicted[PLAN_JOBS_MAX];
    uint64_t checked_rounds, wrong;
    struct look_events events; /* events of the shared service; only with a report */
};

/* Starts services, runs all turns and reports each at its end. Returns a negative errno, with a
 * text on standard error. */
int savings_run(struct savings *s);
const char *savings_setting_name(enum savings_setting setting);

#endif
