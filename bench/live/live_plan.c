/* Converts a trace into jobs for this machine, and into the same jobs for the simulation. Owns only
 * its results. Must never read a clock or send a request to a service. */
#include "bench/live/live.h"

#include "bench/sim/chance.h"
#include "bench/sim/input/csv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define HOURS_MAX 100000
/* network of a simulated worker: no limit, because the real workers are on one machine */
#define LINE_GBIT 1000
/* factor on the number of lanes, because new jobs arrive while late jobs still run */
#define LANES_ROOM 1.5
#define LANES_MAX 96
#define GIB ((double)(1 << 30))

static double end_of(const struct workload *workload)
{
    double end_ns = 0;
    for (size_t i = 0; i < workload->count; i++)
        end_ns = fmax(end_ns, (double)workload->jobs[i].end_ns);
    return end_ns;
}

/* Returns the largest number of workers at the same time. */
static uint32_t peak_of(const struct workload *workload)
{
    uint32_t peak = 0;
    for (size_t i = 0; i < workload->count; i++) {
        uint32_t workers = 0;
        for (size_t k = 0; k < workload->count; k++)
            if (workload->jobs[k].submit_ns <= workload->jobs[i].submit_ns &&
                workload->jobs[k].end_ns > workload->jobs[i].submit_ns)
                workers += workload->jobs[k].workers;
        peak = workers > peak ? workers : peak;
    }
    return peak;
}

static void plan_job(struct live *live, size_t i)
{
    struct workload_job *job = &live->workload.jobs[i];
    job->submit_ns = (uint64_t)((double)job->submit_ns / live->compression);
    job->end_ns = (uint64_t)((double)job->end_ns / live->compression);
    struct plan_job *planned = &live->plan.jobs[i];
    *planned = (struct plan_job){.model = job->model,
                                 .workers = job->workers,
                                 .step_ns = job->model->step_ns * live->time_scale,
                                 .arrive_ns = (double)job->submit_ns,
                                 .stay_ns = (double)(job->end_ns - job->submit_ns),
                                 .seed = chance_hash(live->setting.seed, 2 + i)};
    snprintf(planned->name, sizeof planned->name, "%s", job->name);
}

static int check(const struct workload *workload, char *error)
{
    for (size_t i = 0; i < workload->count; i++)
        if (workload->jobs[i].workers > PLAN_WORKERS_MAX) {
            snprintf(error, TABLE_ERROR_BYTES,
                     "job %s has %u workers; a real service of the bench runs at most %u",
                     workload->jobs[i].name, workload->jobs[i].workers, PLAN_WORKERS_MAX);
            return -EINVAL;
        }
    if (workload->count <= PLAN_JOBS_MAX)
        return 0;
    snprintf(error, TABLE_ERROR_BYTES,
             "the trace has %zu jobs of two or more workers; a real service of the bench runs at "
             "most %u",
             workload->count, PLAN_JOBS_MAX);
    return -EINVAL;
}

int live_plan(struct live *live, char *error)
{
    int r = models_load(&live->models, live->models_folder, error);
    if (r == 0)
        r = workload_read(&live->workload, live->trace, HOURS_MAX, &live->models, error);
    if (r == 0)
        r = check(&live->workload, error);
    if (r < 0)
        return r;
    double end_ns = end_of(&live->workload);
    live->compression = end_ns / (live->replay_s * 1e9);
    live->plan = (struct plan){.seed = live->setting.seed,
                               .turn_ns = live->replay_s * 1e9,
                               .time_scale = live->time_scale,
                               .jitter = live->setting.jitter,
                               .jobs_count = live->workload.count};
    for (size_t i = 0; i < live->workload.count; i++)
        plan_job(live, i);
    live->workload.end_ns = (uint64_t)(end_ns / live->compression);
    uint32_t lanes = (uint32_t)(LANES_ROOM * peak_of(&live->workload));
    live->lanes = lanes < LANES_MAX ? lanes : LANES_MAX;
    return 0;
}

/* The load is a mean over the run: the load of each job is weighted with the time for which the job
 * runs. */
void live_scale(struct live *live, double lane_ns_a_byte)
{
    double unscaled_ns = 0;
    for (size_t i = 0; i < live->plan.jobs_count; i++) {
        const struct plan_job *job = &live->plan.jobs[i];
        double bytes = (double)job->model->elements * sizeof(float) * job->workers;
        unscaled_ns += bytes * lane_ns_a_byte / job->step_ns * job->stay_ns;
    }
    live->lane_ns_a_byte = lane_ns_a_byte;
    live->plan.bytes_scale = live->load * live->plan.turn_ns / unscaled_ns;
}

size_t live_group(const struct live *live, size_t first)
{
    size_t end = first;
    uint32_t workers = 0;
    while (end < live->plan.jobs_count &&
           (end == first || workers + live->plan.jobs[end].workers <= live->lanes))
        workers += live->plan.jobs[end++].workers;
    return end;
}

/* --- the same jobs in the simulation --- */

/* Scales tensors so that the simulated job has the measured lane time in the setting's units. */
static int make_model(const struct live *live, size_t i, struct model *ret_model)
{
    const struct plan_job *job = &live->plan.jobs[i];
    double bytes =
        live->lane_ns[i] * live->clocks_by_reports * live->setting.x_gib_per_s * GIB / 1e9;
    double scale = bytes / ((double)job->model->elements * sizeof(float) * job->workers);
    *ret_model = *job->model;
    ret_model->step_ns = job->step_ns;
    ret_model->elements = 0;
    ret_model->tensors = calloc(job->model->tensors_count, sizeof(struct model_tensor));
    if (!ret_model->tensors)
        return -ENOMEM;
    for (size_t t = 0; t < job->model->tensors_count; t++) {
        double elements = round((double)job->model->tensors[t].elements * scale);
        ret_model->tensors[t] = job->model->tensors[t];
        ret_model->tensors[t].elements = elements < 1 ? 1 : (uint64_t)elements;
        ret_model->elements += ret_model->tensors[t].elements;
    }
    return 0;
}

static void take_jobs(struct live *live)
{
    for (size_t i = 0; i < live->plan.jobs_count; i++) {
        live->losses[i] = 0;
        live->periods_ns[i] = live->plan.jobs[i].step_ns;
    }
    for (size_t i = 0; i < live->trail.jobs_count; i++) {
        const struct trail_job *job = &live->trail.jobs[i];
        live->losses[job->job] = job->loss;
        live->periods_ns[job->job] = job->alone_ns;
    }
}

int live_simulate(struct live *live, char *error)
{
    struct workload workload = live->workload;
    struct model models[PLAN_JOBS_MAX] = {0};
    size_t count = live->workload.count;
    int r = 0;
    workload.jobs = calloc(count, sizeof *workload.jobs);
    if (!workload.jobs)
        return -ENOMEM;
    for (size_t i = 0; r == 0 && i < count; i++) {
        workload.jobs[i] = live->workload.jobs[i];
        workload.jobs[i].model = &models[i];
        r = make_model(live, i, &models[i]);
    }
    live->setting.line_gbit_per_s = LINE_GBIT;
    if (r == 0)
        r = simulate(&workload, &live->setting, &live->trail, &live->simulated, error);
    if (r == 0)
        take_jobs(live);
    for (size_t i = 0; i < count; i++)
        free(models[i].tensors);
    free(workload.jobs);
    return r;
}

void live_fini(struct live *live)
{
    trail_fini(&live->trail);
    free(live->dedicated);
    free(live->shared);
    workload_fini(&live->workload);
    models_fini(&live->models);
}
