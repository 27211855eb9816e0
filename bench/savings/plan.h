/* The jobs of a run of `savings`: sizes, speeds, arrivals. Pure: the same seed gives the same
 * plan. */
#ifndef GRADPOOL_BENCH_SAVINGS_PLAN_H
#define GRADPOOL_BENCH_SAVINGS_PLAN_H

#include "bench/sim/input/models.h"

#include <stdbool.h>

#define PLAN_JOBS_MAX 32
#define PLAN_WORKERS_MAX 16
/* A profile needs 25 rounds and three measurements of the service at intervals of a second (packer,
 * R1). The numbers below are larger, because a measurement may be late, and a fourth measurement is
 * needed before the job leaves. */
#define PLAN_PROFILE_ROUNDS 36
#define PLAN_PROFILE_NS 7e9

struct plan_job {
    char name[64]; /* the same in all turns, because the service finds the job's profile by name */
    const struct model *model;
    uint32_t workers;
    double step_ns;            /* scaled step time without aggregation */
    double arrive_ns, stay_ns; /* time of arrival within a turn, and length of the stay */
    uint64_t seed;             /* seed of the jitter, which is the same in all settings */
};

struct plan {
    /* names of models, separated by commas; used cyclically if there are more jobs */
    const char *mix;
    uint32_t workers; /* number of workers of each job */
    uint64_t seed;
    double turn_ns, alone_ns;
    /* factors for the step times and for the tensor sizes of the models */
    double time_scale, bytes_scale;
    double jitter; /* jitter of a worker's step time: standard deviation divided by mean */
    struct plan_job jobs[PLAN_JOBS_MAX];
    size_t jobs_count;
};

/* Sets `jobs` from the other fields. -EINVAL: a model is not in the tables; `error` has its name
 * (TABLE_ERROR_BYTES). */
int plan_make(struct plan *plan, const struct models *models, char *error);
/* Sets bytes_scale so that all jobs together need `cores` of lane time, with the given lane time
 * for a pushed byte. */
void plan_scale(struct plan *plan, double lane_ns_a_byte, double cores);
/* Returns the number of elements of a scaled tensor; at least one. */
uint64_t plan_elements(const struct plan *plan, const struct model_tensor *tensor);
uint64_t plan_bytes(const struct plan *plan, const struct plan_job *job);
/* Returns the number of rounds of one worker in `stay_ns`. Some of these rounds are measured. */
uint32_t plan_rounds(const struct plan_job *job, double stay_ns);

/* Returns the time of one worker's step in that round, with jitter. */
double plan_step_ns(const struct plan *plan, const struct plan_job *job, uint32_t rank,
                    uint32_t round);
/* Returns the mean step time of the slowest worker over the measured rounds, computed from the
 * random numbers of the plan. A shorter stay uses other random numbers. */
double plan_drawn_ns(const struct plan *plan, const struct plan_job *job, uint32_t rounds);
/* Returns the time from the start of the step until the gradient is ready. As in simulate, a
 * backward pass takes twice as long as the forward pass. */
double plan_ready_ns(double step_ns, const struct model_tensor *tensor);

/* Returns whether the results of a round are checked element by element: the first, a middle one,
 * the last. */
bool plan_is_checked(uint32_t round, uint32_t rounds);
/* Returns whether the round is measured: not in the warm-up, not checked, and not directly after a
 * checked round. */
bool plan_is_timed(uint32_t round, uint32_t rounds);

#endif
