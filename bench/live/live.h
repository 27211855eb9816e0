/* The same jobs on a real service and in the simulation: a trace, compressed in time, with step
 * times and tensors scaled to this machine. */
#ifndef GRADPOOL_BENCH_LIVE_LIVE_H
#define GRADPOOL_BENCH_LIVE_LIVE_H

#include "bench/savings/turn.h"
#include "bench/sim/simulate.h"

struct live {
    const char *trace, *models_folder;
    double replay_s;   /* into which the trace is compressed */
    double time_scale; /* of step times */
    double load;       /* cores of lane time that are offered in the mean */
    struct setting setting;
    bool is_json;

    /* The trace as it is played. */
    struct models models;
    struct workload workload;
    struct plan plan;
    double compression; /* of the trace's time */
    uint32_t lanes;
    double lane_ns_a_byte; /* measured on the way */

    /* What the service has told of each job, and what the lanes' clocks say beside it. */
    double lane_ns[PLAN_JOBS_MAX]; /* a round */
    double told_to_clock;          /* lane time by the clocks for each that was told */

    /* What came of it. */
    struct turn *dedicated, *shared;
    struct simulated simulated;
    struct trail trail;
    double losses[PLAN_JOBS_MAX]; /* 0: no window saw it */
    double periods_ns[PLAN_JOBS_MAX];
};

/* --- live_plan.c: pure --- */

/* Reads the trace; fills models, workload and plan, but for the scale of tensors. -errno, with a
 * text in `error` (TABLE_ERROR_BYTES). */
int live_plan(struct live *live, char *error);
/* Sets it for the load, when a pushed byte takes so long. */
void live_scale(struct live *live, double lane_ns_a_byte);
/* The jobs from `first` on that have room on the lanes side by side; returns the end. */
size_t live_group(const struct live *live, size_t first);
/* Plays the workload on the virtual clock: each job's lane time is what was measured. */
int live_simulate(struct live *live, char *error);
void live_fini(struct live *live);

/* --- live.c --- */

/* Starts services, plays the trace on both and in the simulation, reports. Negative errno, with a
 * text on standard error. */
int live_run(struct live *live);

/* --- live_report.c --- */

void live_report_plan(const struct live *live);
void live_report(const struct live *live);

#endif
