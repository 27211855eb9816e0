/* The engine that starts workers on nodes of Slurm, with Slurm's own commands. */
#ifndef GRADPOOL_POOL_SLURM_SLURM_H
#define GRADPOOL_POOL_SLURM_SLURM_H

#include "svc/pool/engine/engine.h"

struct slurm_setup {
    const struct pool_folder *folder; /* outlives the engine */
    char *const *options; /* further options of srun and sbatch; the list ends with NULL */
    int signal_fd;        /* receives the signals that interrupt adopt() */
    int *ret_signal;      /* the signal that has interrupted adopt() */
    /* Prints a line for the user while adopt() waits for Slurm. */
    void (*say)(const char *format, ...) __attribute__((format(printf, 1, 2)));
};

/* Creates the engine. `setup` outlives the engine. With SLURM_JOB_ID in the environment, workers
 * are steps of that allocation; otherwise workers are jobs. */
int engine_slurm_create(const struct slurm_setup *setup, struct pool_engine **ret_engine,
                        struct err *err);

#endif
