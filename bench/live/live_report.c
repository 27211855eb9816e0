/* Prints a comparison: both time series, each job, a summary line. */
#include "bench/live/live.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NEAR 0.02

struct sums {
    double live, simulated, predicted; /* mean losses */
    /* with_prediction: number of jobs with a prediction; predicted_near: number of jobs whose
     * prediction is within 2 points of the measured loss */
    size_t jobs, near, with_prediction, predicted_near;
};

void live_report_plan(const struct live *live)
{
    const char *folder_end = strrchr(live->trace, '/');
    const char *trace = folder_end ? folder_end + 1 : live->trace;
    double lane_ns_a_kib = live->lane_ns_a_byte * 1024;
    unsigned long long seed = live->setting.seed;
    if (live->is_json)
        printf("{\"plan\": {\"trace\": \"%s\", \"jobs\": %zu, \"compression\": %.3f, "
               "\"step_scale\": %.3f, \"tensor_scale\": %.5f, \"offered_cores\": %.3f, "
               "\"lane_ns_a_kib\": %.2f, \"lanes\": %u, \"policy\": \"%s\", \"seed\": %llu}}\n",
               trace, live->plan.jobs_count, live->compression, live->time_scale,
               live->plan.bytes_scale, live->load, lane_ns_a_kib, live->lanes, live->setting.policy,
               seed);
    else
        printf("%s: %zu jobs of two or more workers; time / %.1f, step times x %.3f, tensors x "
               "%.5f,\nto offer %.2f cores of lane time in the mean (%.1f ns a KiB pushed); %u "
               "lanes time-share this machine. Policy %s, seed %llu.\n",
               trace, live->plan.jobs_count, live->compression, live->time_scale,
               live->plan.bytes_scale, live->load, lane_ns_a_kib, live->lanes, live->setting.policy,
               seed);
    fflush(stdout);
}

/* Prints two series of busy cores over time: of the real service, and of the simulation. */
static void report_series(const struct live *live)
{
    double part_s = (double)live->workload.end_ns / 1e9 / TRAIL_PARTS;
    for (size_t i = 0; i < live->shared->looks_count; i++) {
        if (isnan(live->shared->looks[i].used))
            continue;
        printf("{\"series\": \"live\", \"until_s\": %.3f, \"lanes\": %u, \"busy_cores\": %.4f}\n",
               live->shared->looks[i].at_s, live->shared->looks[i].lanes,
               live->shared->looks[i].used);
    }
    for (size_t i = 0; i < TRAIL_PARTS; i++)
        printf("{\"series\": \"simulated\", \"until_s\": %.3f, \"lanes\": %.2f, \"busy_cores\": "
               "%.4f}\n",
               part_s * (double)(i + 1), live->trail.parts[i].allocated,
               live->trail.parts[i].fluid);
}

static void print_job(const struct live *live, size_t i, double loss, double predicted)
{
    const struct plan_job *job = &live->plan.jobs[i];
    const struct turn_job *shared = &live->shared->jobs[i];
    double dedicated_ms = live->dedicated->jobs[i].period_ns / 1e6;
    double shared_ms = shared->period_ns / 1e6, alone_ms = live->periods_ns[i] / 1e6;
    double lane_ms = live->lane_ns[i] / 1e6, simulated = live->losses[i];
    if (!live->is_json) {
        printf("%-6s %-14s %2u workers %4u rounds of %7.3f ms lane time: own lanes %8.2f ms, "
               "shared %8.2f, simulated alone %8.2f; lost %6.2f %%, simulated %5.2f, ",
               job->name, job->model->name, job->workers, shared->rounds, lane_ms, dedicated_ms,
               shared_ms, alone_ms, 100 * loss, 100 * simulated);
        if (isnan(predicted))
            printf("no prediction\n");
        else
            printf("predicted %5.2f\n", 100 * predicted);
        return;
    }
    printf("{\"job\": \"%s\", \"model\": \"%s\", \"workers\": %u, \"rounds\": %u, \"lane_ms\": "
           "%.4f, \"dedicated_ms\": %.3f, \"shared_ms\": %.3f, \"simulated_alone_ms\": %.3f, "
           "\"loss_live\": %.5f, \"loss_simulated\": %.5f",
           job->name, job->model->name, job->workers, shared->rounds, lane_ms, dedicated_ms,
           shared_ms, alone_ms, loss, simulated);
    if (!isnan(predicted))
        printf(", \"loss_predicted\": %.5f", predicted);
    printf("}\n");
}

static void report_job(const struct live *live, size_t i, struct sums *sums)
{
    double loss = 1 - live->dedicated->jobs[i].period_ns / live->shared->jobs[i].period_ns;
    double predicted = turn_predicted(&live->shared->jobs[i]);
    print_job(live, i, loss, predicted);
    sums->live += loss;
    sums->simulated += live->losses[i];
    sums->near += fabs(loss - live->losses[i]) <= NEAR;
    sums->jobs++;
    if (isnan(predicted))
        return;
    sums->with_prediction++;
    sums->predicted += predicted;
    sums->predicted_near += fabs(loss - predicted) <= NEAR;
}

static void print_last_json(const struct live *live, const struct sums *sums)
{
    double busy_s = live->simulated.fluid * 3600, jobs = (double)sums->jobs;
    printf("{\"busy_core_s_live\": %.4f, \"busy_core_s_simulated\": %.4f, \"busy_ratio\": %.4f, "
           "\"busy_core_s_own_lanes\": %.4f, \"allocated_core_s_live\": %.3f, "
           "\"allocated_core_s_simulated\": %.3f, \"loss_live\": %.5f, \"loss_simulated\": %.5f, ",
           live->shared->used_s, busy_s, live->shared->used_s / busy_s, live->dedicated->used_s,
           live->shared->allocated_s, live->simulated.allocated * 3600, sums->live / jobs,
           sums->simulated / jobs);
    if (sums->with_prediction > 0)
        printf("\"loss_predicted\": %.5f, \"predicted_near_fraction\": %.4f, ",
               sums->predicted / (double)sums->with_prediction,
               (double)sums->predicted_near / (double)sums->with_prediction);
    printf("\"jobs_near_fraction\": %.4f, \"jobs\": %zu, \"jobs_predicted\": %zu, "
           "\"x_gib_per_s\": %.4f, \"clock_by_told\": %.4f, \"wrong\": %llu}\n",
           (double)sums->near / jobs, sums->jobs, sums->with_prediction, live->setting.x_gib_per_s,
           live->clocks_by_reports,
           (unsigned long long)(turn_wrong(live->dedicated) + turn_wrong(live->shared)));
}

static void print_last(const struct live *live, const struct sums *sums)
{
    double busy_s = live->simulated.fluid * 3600, jobs = (double)sums->jobs;
    printf("busy core time: live %.3f s, simulated %.3f s: %.3f times (on own lanes live %.3f s); "
           "allocated %.1f and %.1f core-s\nlost in the mean: live %.5f, simulated %.5f; to 2 "
           "points: simulated %.3f of %zu jobs\n",
           live->shared->used_s, busy_s, live->shared->used_s / busy_s, live->dedicated->used_s,
           live->shared->allocated_s, live->simulated.allocated * 3600, sums->live / jobs,
           sums->simulated / jobs, (double)sums->near / jobs, sums->jobs);
    if (sums->with_prediction > 0)
        printf("predicted in the mean: %.5f; to 2 points: %.3f of the %zu jobs with a prediction\n",
               sums->predicted / (double)sums->with_prediction,
               (double)sums->predicted_near / (double)sums->with_prediction, sums->with_prediction);
    printf("X %.3f GiB/s; lane clocks %.3f of the reported lane time; %llu elements wrong\n",
           live->setting.x_gib_per_s, live->clocks_by_reports,
           (unsigned long long)(turn_wrong(live->dedicated) + turn_wrong(live->shared)));
}

void live_report(const struct live *live)
{
    struct sums sums = {0};
    if (live->is_json)
        report_series(live);
    for (size_t i = 0; i < live->plan.jobs_count; i++)
        report_job(live, i, &sums);
    (live->is_json ? print_last_json : print_last)(live, &sums);
}
