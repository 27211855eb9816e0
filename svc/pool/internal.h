/* State of the running pool. */
#ifndef GRADPOOL_POOL_INTERNAL_H
#define GRADPOOL_POOL_INTERNAL_H

#include "svc/pool/engine/engine.h"
#include "svc/pool/folder.h"
#include "svc/pool/pool.h"
#include "svc/pool/site/site.h"
#include "svc/pool/watch.h"

struct worker_pool {
    const struct pool_options *options;
    struct pool_folder *folder;
    struct pool_ranks ranks;
    struct pool_engine *engine;
    /* by rank: process of another pool that has joined as this rank */
    uint32_t foreign[POOL_RANKS_MAX];
    struct watch *watch;  /* NULL: the pool receives orders of a site */
    struct site *site;    /* NULL: the service has no slots for this pool */
    uint32_t workers_max; /* workers_max of the job, perhaps chosen by an earlier pool */
    int signal_fd;
    int forwarded;      /* signal that ends the workers; 0: none has arrived */
    bool awaits_look;   /* workers were adopted, and no look has shown the job yet */
    bool is_fixed_told; /* the message that the job has a fixed size was printed */
    bool is_too_large;  /* the last look has shown a size above --workers-max */
    bool is_unseen;     /* the last look, or the connection to the coordinator, has failed */
    bool has_joined;    /* the coordinator has accepted the pool, or its watch of the job */
};

/* Adopts the living workers of an earlier pool of this folder. Ends processes whose worker has
 * ended. Returns the number of adopted workers, or a negative errno, for example if the workers
 * belong to another job or command. */
int pool_adopt(struct worker_pool *pool, uint64_t now_ns, struct err *err);
/* Returns a hash of a command, by which the command is compared with that of the folder. */
uint64_t pool_program_hash(char *const *program);
/* Starts the parent of workers with preloaded modules, if the user has named modules. */
void pool_begin_preload(struct worker_pool *pool);
/* Stores the state of the folder after a rank has changed. A failure is only printed. */
void pool_store_rank(struct pool_folder *folder, uint32_t rank);
/* Starts a process of the rank, and stores the process or the failure in pool->ranks. */
void pool_start_rank(struct worker_pool *pool, uint32_t rank, uint64_t now_ns);
/* Carries out the orders that have arrived. Returns the state of the connection: 0 or a negative
 * errno. */
int pool_take_orders(struct worker_pool *pool);
/* Handles the end of a rank's process: reports the end to the coordinator, judges it, and prints
 * the result. */
void pool_rank_ended(struct worker_pool *pool, uint32_t rank, enum rank_end end, int number);
/* Reports the state of the rank's newest start to the coordinator, if the pool has a site. */
void pool_report(struct worker_pool *pool, uint32_t rank, struct site_report report);
/* Prints how the end of a rank's process was judged. `how`: such as "ended with exit code 1". */
void pool_tell_verdict(const struct worker_pool *pool, uint32_t rank, const char *how,
                       enum rank_verdict verdict, uint32_t pause_s);
/* Prints a line on standard error. */
void pool_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
