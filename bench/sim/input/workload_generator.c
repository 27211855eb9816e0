/* Draws jobs for simulations without a trace. Depends only on the seed: the same seed gives the
 * same jobs on every machine.
 *
 * Arrivals have a constant mean rate. A run time is exp(mu + sigma z) seconds with normal z: half
 * of the jobs end within half an hour, and the longest tenth of the jobs needs most of the total
 * time. Two, four or eight workers are usual, more are rare, as in public traces. */
#include "bench/sim/chance.h"
#include "bench/sim/input/csv.h"
#include "bench/sim/input/workload.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define JOBS_PER_HOUR 4.0
#define MEDIAN_S 1800.0
#define SIGMA 2.0
#define SHORTEST_S 30.0

static uint32_t draw_workers(uint64_t *state)
{
    static const struct {
        double share;
        uint32_t workers;
    } usual[] = {{0.35, 2}, {0.30, 4}, {0.29, 8}, {0.04, 16}, {1, 32}};
    double x = chance_unit(state);
    size_t i = 0;

    while (x >= usual[i].share)
        x -= usual[i++].share;
    return usual[i].workers;
}

static struct workload_job draw_job(uint64_t *state, const struct models *models, size_t number,
                                    double submit_s)
{
    double duration_s = MEDIAN_S * exp(SIGMA * chance_normal(state));
    struct workload_job job = {.submit_ns = (uint64_t)(submit_s * 1e9)};

    job.end_ns = job.submit_ns + (uint64_t)(fmax(duration_s, SHORTEST_S) * 1e9);
    job.workers = draw_workers(state);
    job.model = &models->all[(size_t)(chance_unit(state) * (double)models->count)];
    snprintf(job.name, sizeof(job.name), "g%zu", number);
    return job;
}

int workload_generate(struct workload *workload, uint64_t seed, double hours,
                      const struct models *models, char *error)
{
    uint64_t state = seed;
    double now_s = 0;
    int r = 0;

    *workload = (struct workload){.end_ns = (uint64_t)(hours * (double)NS_PER_HOUR)};
    while (r == 0) {
        struct workload_job job;

        now_s += chance_exponential(&state) * 3600 / JOBS_PER_HOUR;
        if (now_s >= hours * 3600)
            return 0;
        job = draw_job(&state, models, workload->count, now_s);
        job.end_ns = job.end_ns < workload->end_ns ? job.end_ns : workload->end_ns;
        r = workload_add(workload, &job);
    }
    snprintf(error, TABLE_ERROR_BYTES, "no memory for %zu jobs", workload->count);
    workload_fini(workload);
    return r;
}
