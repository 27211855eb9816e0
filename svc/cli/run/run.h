/* Options of `run` and `resize`; a job whose size may change. */
#ifndef GRADPOOL_CLI_RUN_RUN_H
#define GRADPOOL_CLI_RUN_RUN_H

#include "svc/cli/options/knobs.h"

extern const struct knob run_knobs[], resize_knobs[];

#define RUN_SLURM_MAX 32

/* Options --engine and --slurm: which program starts the processes of the workers. */
struct run_engine {
    const char *name;               /* NULL: the option is not set */
    char *slurm[RUN_SLURM_MAX + 1]; /* options for srun and sbatch; the list ends with NULL */
};

/* Options of `run` with --workers-max. */
struct run_pool {
    const char *endpoint, *job, *folder, *site, *study, *preload; /* NULL: not set */
    uint32_t workers, workers_max, followers;
    bool may_rest;
    uint64_t leave_ms;
    struct run_engine engine;
    char **program;
};
/* Returns the mistake in the name of a job; NULL: none. */
const char *run_check_job(const char *job);
/* Sets the engine, or adds an option for Slurm. Returns 0, -EINVAL or -E2BIG. */
int engine_set(struct run_engine *engine, const char *value, struct err *err);
int engine_add_slurm(struct run_engine *engine, const char *value, struct err *err);
bool engine_is_slurm(const struct run_engine *engine);
/* Returns options that exclude each other; NULL: none. `preload`: NULL if not set. */
const char *engine_find_mistake(const struct run_engine *engine, const char *preload);
/* Runs a pool with one job. Returns the exit code. */
int run_pool(const struct run_pool *options);

#endif
