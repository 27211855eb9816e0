/* State of sites, pools and their jobs, shared by the files of this room. */
#ifndef GRADPOOL_COORDINATOR_SLOTS_INTERNAL_H
#define GRADPOOL_COORDINATOR_SLOTS_INTERNAL_H

#include "packer/elastic/scheduler.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/slots/slots.h"

#define SLOTS_LOOK_NS NS_PER_S /* pause between two looks at the jobs of pools */
/* time without a pool after which its jobs are held (SL5) */
#define SLOTS_AWAY_NS (60 * NS_PER_S)
#define SLOTS_JOBS_MAX 4096   /* maximum number of jobs of all pools */
#define SLOTS_FAILURES_MAX 3  /* failed workers without a step after which a job fails */
#define SLOTS_LISTED_MAX 4096 /* maximum number of workers and of reports in a message */
#define SLOTS_SITE_BYTES 64
#define SLOTS_TEXT_BYTES 256
/* Exit code of a worker whose join was refused as stale: not a failure of the job. */
#define SLOTS_EXIT_STALE 75

/* --- state --- */

enum slots_state {
    SLOTS_NONE,
    SLOTS_WANTED,  /* the scheduler has given a slot; no order was stored */
    SLOTS_ORDERED, /* START is stored; the pool has not reported the process */
    SLOTS_STARTED, /* the pool has reported the process, or the worker has joined */
};

/* A rank of a job. */
struct slots_worker {
    enum slots_state state;
    bool is_leaving;   /* the scheduler takes the slot back */
    bool leave_stored; /* the store has `is_leaving` */
    bool leave_sent;   /* on the present connection of the pool */
    bool start_sent;   /* on the present connection of the pool */
    bool is_listed;    /* the joining pool has this worker */
    bool has_left;     /* the training has ended, and the worker had said goodbye */
    uint32_t slot;
    uint64_t incarnation; /* 0 in the states NONE and WANTED */
    char *waits;          /* reason of the pool for a process that cannot start yet; NULL: none */
};

/* Progress of a job, for the measured points of its curve. */
struct slots_speed {
    uint32_t workers, reference;
    uint64_t first_rounds;     /* rounds when the number of workers changed */
    uint64_t rounds, begun_ns; /* start of the measured rounds */
    bool is_measuring, has_reported;
};

struct slots_site {
    struct list link;
    struct service *service;
    char name[SLOTS_SITE_BYTES + 1];
    uint32_t count; /* slots by the option; a restored worker may have a higher slot */
    struct scheduler *scheduler;
    uint64_t grown, shrunk; /* resizes of jobs since the start of this process */
    bool has_news;          /* workers have changed while orders were carried out */
};

struct slots_pool {
    struct list link;
    struct service *service;
    struct tenant *tenant;
    struct slots_site *site;
    uint64_t number;
    struct peer *peer; /* NULL: the pool is not connected */
    char *node;
    uint32_t pid;
    struct timer away; /* end of the time in which the pool may connect again */
    bool is_held;      /* no worker of the pool's jobs is started or ordered to leave (SL5) */
    bool is_missing;   /* the pool has not connected in time */
};

struct slots_job {
    struct list link;
    uint32_t id; /* number of the job in its scheduler */
    char *name, *study;
    struct slots_pool *pool;
    uint32_t workers_min, workers_max;
    uint32_t first; /* number of workers with which the training begins; 0: not known yet */
    uint64_t steps;
    struct slots_worker *workers; /* by rank; workers_max of them */
    uint32_t reach; /* no rank from here on has had a worker; most waiting jobs have 0 */
    struct slots_speed *speed;
    uint32_t training; /* number of the job (struct job) that was last seen; 0: none */
    uint32_t failures; /* failed workers since the last step */
    bool is_fixed;     /* the script has joined without workers_max, so its workers stay */
    bool is_complete;  /* a worker has ended its training, so no other one is started */
    bool is_ending;    /* all workers are ordered to end */
    bool is_held;      /* last value sent to the scheduler */
    int end_code;
    char end_text[SLOTS_TEXT_BYTES]; /* reason of a failure; "": none */
    char decision[SLOTS_TEXT_BYTES];
    uint64_t decided_ns;
};

struct slots_ended;

struct slots {
    struct service *service;
    struct slots_ended *ended; /* jobs that have ended lately */
    struct list sites, pools, jobs;
    struct timer look;
    uint64_t incarnations; /* numbers given by this process */
    uint32_t jobs_count, next_id;
};

/* --- find.c --- */

struct slots_site *slots_find_site(const struct service *s, const char *name);
struct slots_job *slots_find_job(const struct service *s, const struct tenant *tenant,
                                 const char *name);
struct slots_pool *slots_pool_find(const struct service *s, const struct tenant *tenant,
                                   uint64_t number);
/* Returns the pool of the connection, or NULL. */
struct slots_pool *slots_pool_of(const struct peer *p);
/* Returns the job in training; NULL: no worker has joined, or all have gone. */
struct job *slots_training(const struct slots_job *job);
/* Returns the next incarnation, larger than all of earlier processes of the coordinator. */
uint64_t slots_next_incarnation(struct service *s);
/* Looks at all jobs in the event loop, after the caller has returned. */
void slots_look_soon(struct service *s);

/* --- pool.c --- */

/* Creates a pool that is not connected. NULL: no memory. */
struct slots_pool *slots_pool_create(struct slots_site *site, struct tenant *tenant,
                                     uint64_t number, const char *node, uint32_t pid);
bool slots_pool_has_jobs(const struct slots_pool *pool);
/* Frees the pool if it is not connected and has no job. */
void slots_pool_check(struct slots_pool *pool);
void slots_pool_free(struct slots_pool *pool);
/* Writes "the pool on node7 (pid 4242)". Returns `buffer`. */
const char *slots_pool_name(const struct slots_pool *pool, char *buffer, size_t buffer_bytes);

/* --- decide.c --- */

/* Sends an event to the scheduler, and notes its actions in the workers. Returns 0 or a negative
 * errno of scheduler_step(). */
int slots_decide(struct slots_site *site, struct scheduler_event event);
/* Submits the job to the scheduler. */
int slots_decide_submit(struct slots_job *job);
/* Returns whether the workers of the job have to stay as they are (SL5). */
bool slots_must_hold(const struct slots_job *job);

/* --- jobs.c --- */

/* Creates a job that is in no list and no store. NULL: no memory. */
struct slots_job *slots_job_create(struct slots_pool *pool, const char *name, const char *study,
                                   uint32_t workers_min, uint32_t workers_max);
void slots_job_free(struct slots_job *job);
void slots_job_row(const struct slots_job *job, struct store_row *ret_row);
/* Stores the rank of a job. Returns 0 or a negative errno, which is logged. */
int slots_worker_keep(const struct slots_job *job, uint32_t rank);
/* The process of the rank has ended, or was never ordered. Frees its slot. */
void slots_worker_out(struct slots_job *job, uint32_t rank);
/* Orders all workers of the job to end. `code` and `text` are sent with POOL_OVER. */
void slots_job_end(struct slots_job *job, int code, const char *text);
uint32_t slots_job_count_workers(const struct slots_job *job);
/* Holds the workers of the job, or ends the hold, if that is due. */
void slots_job_hold(struct slots_job *job);

/* --- orders.c --- */

/* Brings the sizes of jobs, the store and the pools to the state of the workers. Jobs of the site
 * may be freed. */
void slots_carry_out(struct slots_site *site);
/* Deletes the job, and informs its pool. */
void slots_job_over(struct slots_job *job);

/* Orders the pool to end a process whose start is not the rank's newest one. */
void slots_send_end(const struct slots_job *job, uint32_t rank, uint64_t incarnation);

/* --- reports.c --- */

/* The process of the rank exists. */
void slots_worker_found(struct slots_job *job, uint32_t rank);
/* Looks at the sessions of a job whose pool is missing: their slots are free when they end. */
void slots_look_without_pool(struct slots_job *job);

/* --- ended.c --- */

struct slots_ended *slots_ended_create(void); /* NULL: no memory */
void slots_ended_destroy(struct slots_ended *all);

/* --- speed.c --- */

/* Reports the progress of the job to the scheduler. */
void slots_look_at_speed(struct slots_job *job, const struct job *of);

#endif
