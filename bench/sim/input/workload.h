/* The jobs of a simulation with their arrivals and lengths: from a file, or drawn from a seed. */
#ifndef GRADPOOL_BENCH_SIM_INPUT_WORKLOAD_H
#define GRADPOOL_BENCH_SIM_INPUT_WORKLOAD_H

#include "bench/sim/input/models.h"

#define NS_PER_HOUR UINT64_C(3600000000000)

struct workload_job {
    char name[40];
    uint64_t submit_ns, end_ns; /* submission, and end of a run alone without queueing */
    uint32_t workers;           /* 2 or more */
    const struct model *model;
};

struct workload {
    struct workload_job *jobs; /* by submit_ns */
    size_t count;
    size_t single;   /* jobs of one worker, left out because they aggregate nothing */
    uint64_t end_ns; /* the clock stops here */
};

/* Columns job_id, submit_s, duration_s, workers, model. `hours` 0: up to the last submission,
 * rounded up to whole hours. An error text (TABLE_ERROR_BYTES) names file and line. */
int workload_read(struct workload *workload, const char *path, double hours,
                  const struct models *models, char *error);

/* Poisson arrivals; durations with a heavy tail; workers as real clusters have them; models
 * uniform. Returns 0 or -ENOMEM. */
int workload_generate(struct workload *workload, uint64_t seed, double hours,
                      const struct models *models, char *error);
void workload_fini(struct workload *workload);

/* Adds a job. Its time is cut at end_ns. Returns 0 or -ENOMEM. */
int workload_add(struct workload *workload, const struct workload_job *job);

#endif
