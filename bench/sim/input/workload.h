/* The jobs of a simulation with their arrivals and lengths, from a file or random with a seed. */
#ifndef GRADPOOL_BENCH_SIM_INPUT_WORKLOAD_H
#define GRADPOOL_BENCH_SIM_INPUT_WORKLOAD_H

#include "bench/sim/input/models.h"

#define NS_PER_HOUR UINT64_C(3600000000000)

struct workload_job {
    char name[40];
    /* time of submission; end of the job if it is alone and does not wait */
    uint64_t submit_ns, end_ns;
    uint32_t workers; /* number of workers, 2 or more */
    const struct model *model;
};

struct workload {
    struct workload_job *jobs; /* sorted by submit_ns */
    size_t count;
    /* number of jobs with one worker, which are left out because they aggregate nothing */
    size_t single;
    uint64_t end_ns; /* the clock stops at this time */
};

/* Reads the columns job_id, submit_s, duration_s, workers, model. `hours` 0: up to the last
 * submission, rounded up to whole hours. An error text (TABLE_ERROR_BYTES) names file and line. */
int workload_read(struct workload *workload, const char *path, double hours,
                  const struct models *models, char *error);

/* Draws Poisson arrivals, durations with a heavy tail, numbers of workers as in real clusters, and
 * models with equal probability. Returns 0 or -ENOMEM. */
int workload_generate(struct workload *workload, uint64_t seed, double hours,
                      const struct models *models, char *error);
void workload_fini(struct workload *workload);

/* Adds a job, which ends at end_ns at the latest. Returns 0 or -ENOMEM. */
int workload_add(struct workload *workload, const struct workload_job *job);

#endif
