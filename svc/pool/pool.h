/* A pool: starts the workers of one job on this host or with Slurm, follows the size of the job or
 * the orders of a site, and ends all processes of a worker that has ended. Only the caller chooses
 * the program of the workers. */
#ifndef GRADPOOL_POOL_POOL_H
#define GRADPOOL_POOL_POOL_H

#include "svc/base/err.h"
#include "svc/pool/site/site.h"

struct pool_options {
    const char *folder;
    const char *job;      /* NULL: the job of adopted workers, or else `new_job` */
    const char *new_job;  /* a name that no other job has */
    const char *endpoint; /* GRADPOOL_ENDPOINT of the workers */
    uint32_t workers, workers_max;
    uint64_t leave_ns;     /* time in which a removed worker leaves by itself */
    char **program;        /* arguments; ends with NULL */
    const char *engine;    /* starts the workers: "local" or "slurm"; NULL: local */
    char *const *slurm;    /* further options of srun and sbatch; the list ends with NULL */
    const char *preload;   /* modules, checked by preload_find_mistake(); NULL: none */
    const char *site;      /* site that the user has named; NULL: `host_site` */
    const char *study;     /* study of the job, only with a site; NULL: none */
    bool may_rest;         /* the job may rest, to make room for other jobs of the site */
    uint32_t followers;    /* number of jobs that the study submits next */
    const char *host_site; /* site of this host, if the service has slots for it; NULL: none */
    bool is_unanswered;    /* the service does not answer, so workers start without a look */
    /* Requests the state of the job from the service, at first in the caller's thread, then in
     * another thread. `pool` is the number of the folder. Returns 0 or a negative errno with a
     * text. -EEXIST: another pool has the job. */
    int (*look)(void *context, const char *job, uint64_t pool, struct pool_look *ret_look,
                struct err *err);
    void *context;
    const struct site_calls *calls; /* for a pool with a site */
    void *calls_context;
};

/* Runs the workers until they have ended. If the folder has living workers of an earlier pool, they
 * are adopted. Messages are written to standard error. Returns the exit code: 0 if the job was
 * trained. Called once in a process. The caller then ends the process with _exit(), because the
 * thread of the looks uses `options` until the process ends. */
int pool_run(const struct pool_options *options);

#endif
