/* The same jobs on a real service and in the simulation: a trace, compressed in time, with step
 * times and tensors scaled to this machine. */
#ifndef GRADPOOL_BENCH_LIVE_LIVE_H
#define GRADPOOL_BENCH_LIVE_LIVE_H

#include "bench/savings/turn.h"
#include "bench/sim/simulate.h"

struct live {
    const char *trace, *models_folder;
    double replay_s;   /* length of the compressed trace */
    double time_scale; /* factor on step times */
    double load;       /* mean lane time of all jobs, in cores */
    struct setting setting;
    bool is_json;

    /* The replayed trace. */
    struct models models;
    struct workload workload;
    struct plan plan;
    double compression; /* factor by which time is compressed */
    uint32_t lanes;
    double lane_ns_a_byte; /* lane time of a pushed byte, measured during the run */

    /* Measurements on the service. */
    double lane_ns[PLAN_JOBS_MAX]; /* lane time of a round of each job, reported by the service */
    /* lane time by the clocks of the lanes' threads, divided by the lane time in the service's
     * reports of jobs */
    double clocks_by_reports;

    /* Results. */
    struct turn *dedicated, *shared;
    struct simulated simulated;
    struct trail trail;
    double losses[PLAN_JOBS_MAX]; /* measured loss of each job; 0: no window has a measurement */
    double periods_ns[PLAN_JOBS_MAX];
};

/* --- live_plan.c: pure --- */

/* Reads the trace; sets models, workload and plan, except the scale of tensors. Returns -errno,
 * with a text in `error` (TABLE_ERROR_BYTES). */
int live_plan(struct live *live, char *error);
/* Sets the scale of tensors. With this scale, and with the given lane time for a pushed byte, the
 * jobs have the load `load`. */
void live_scale(struct live *live, double lane_ns_a_byte);
/* Returns the index after the last job of a group. The group begins with job `first`, and all its
 * jobs fit on separate lanes at the same time. */
size_t live_group(const struct live *live, size_t first);
/* Runs the workload on the virtual clock with the measured lane time of each job. */
int live_simulate(struct live *live, char *error);
void live_fini(struct live *live);

/* --- live.c --- */

/* Starts two services, replays the trace on both services and in the simulation, and prints a
 * report. Returns a negative errno, with a text on standard error. */
int live_run(struct live *live);

/* --- live_report.c --- */

void live_report_plan(const struct live *live);
void live_report(const struct live *live);

#endif
