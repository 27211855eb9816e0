/* State of sites, pools and their jobs, shared by the files of this room. */
#ifndef GRADPOOL_COORDINATOR_SLOTS_INTERNAL_H
#define GRADPOOL_COORDINATOR_SLOTS_INTERNAL_H

#include "packer/elastic/scheduler.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/slots/slots.h"

#define SLOTS_LOOK_NS NS_PER_S /* time between two checks of all jobs of pools */
/* time for which a pool is missing before its jobs are held (SL5) */
#define SLOTS_AWAY_NS (60 * NS_PER_S)
/* time after which a missing pool's jobs are removed, unless a worker has joined (SL5) */
#define SLOTS_FORGET_S 3600u
#define SLOTS_JOBS_MAX 4096 /* maximum number of jobs of all pools */
/* number of failed workers, without a step in between, after which a job fails */
#define SLOTS_FAILURES_MAX 3
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
    SLOTS_RESTING, /* the worker sleeps, and has no slot */
};

/* A rank of a job, and the process that the pool runs for this rank. */
struct slots_worker {
    enum slots_state state;
    bool is_leaving;   /* the scheduler has taken the slot back, so the worker has to leave */
    bool leave_stored; /* `is_leaving` is set in the store */
    bool leave_sent;   /* the order to leave was sent on the present connection of the pool */
    bool start_sent;   /* the order to start was sent on the present connection of the pool */
    bool is_waking;    /* the worker has a slot again, which is not stored yet */
    bool has_joined;   /* this start has joined, so the rank's session belongs to this start */
    bool is_listed;    /* the pool has listed this worker in its last join */
    bool is_found;     /* the process runs, but this was not stored; the state is ORDERED */
    bool has_left;     /* the training has ended, and the worker had sent a Goodbye */
    bool was_lost;     /* the training has ended, and the worker had joined, but sent no Goodbye */
    uint32_t slot;
    uint64_t incarnation; /* number of this start of the rank; 0 in the states NONE and WANTED */
    char *waits;          /* pool's reason why the process cannot start yet; NULL: none */
};

static inline bool slots_has_slot(const struct slots_worker *worker)
{
    return worker->state != SLOTS_NONE && worker->state != SLOTS_RESTING;
}

/* Rounds of a job since its number of workers changed, from which its speed is measured. */
struct slots_speed {
    uint32_t workers, reference;
    uint64_t first_rounds;     /* number of rounds at the time when the number of workers changed */
    uint64_t rounds, begun_ns; /* number of rounds, and time, at the beginning of the measurement */
    bool is_measuring, has_reported;
};

/* Rest of a job. */
struct slots_rest {
    bool may;        /* the user allows rests that make room for other jobs */
    bool is_allowed; /* the scheduler may let the job rest without an order */
    bool is_ordered; /* the scheduler has ordered the job to rest */
    bool is_by_user; /* the user has ordered the rest */
    /* Standing of the job's trial in its study, by which rests are ordered (SL32): number of
     * reached rungs, and the report at the last one. Not stored, because the pool sends the
     * standing again after each connect. */
    bool has_standing;
    uint32_t rung;
    double value;
};

struct slots_site {
    struct list link;
    struct service *service;
    char name[SLOTS_SITE_BYTES + 1];
    /* number of slots in the option; a restored worker may have a slot beyond this number */
    uint32_t count;
    struct scheduler *scheduler;
    /* number of resizes to more and to fewer workers since the start of this process */
    uint64_t grown, shrunk;
    bool has_news; /* the scheduler has changed workers, so orders have to be carried out */
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
    uint64_t away_ns;  /* time when the last connection ended or the coordinator restarted */
    struct timer away; /* fires if the pool has not connected again in time */
    bool is_held;      /* no worker of the pool's jobs is started or ordered to leave (SL5) */
    bool is_missing;   /* the pool has not connected in time */
};

struct slots_job {
    struct list link;
    uint32_t id; /* number of the job in the scheduler of the site */
    char *name, *study;
    struct slots_pool *pool;
    uint32_t workers_min, workers_max;
    uint32_t first; /* number of workers at the beginning of the training; 0: not known yet */
    uint64_t steps;
    struct slots_worker *workers; /* array of workers_max workers, by rank */
    uint32_t reach; /* ranks from this number on have never had a worker; 0 for most waiting jobs */
    struct slots_speed *speed;
    uint32_t training; /* number of the last training of this job (struct job.id); 0: none */
    uint32_t failures; /* number of failed workers since the last step */
    bool is_fixed;     /* the script joined without workers_max, so the number of workers stays */
    bool has_joined;   /* a worker has joined since the start of this process */
    bool is_complete;  /* a worker has ended its training, so no further worker is started */
    bool is_ending;    /* all workers are ordered to end */
    bool is_held;      /* the last value of "held" that was sent to the scheduler */
    struct slots_rest *rest;
    int end_code;
    char end_text[SLOTS_TEXT_BYTES]; /* reason of a failure; "": none */
    char decision[SLOTS_TEXT_BYTES];
    uint64_t decided_ns;
};

struct slots_ended;

struct slots {
    struct service *service;
    struct slots_ended *ended; /* jobs that have ended recently */
    struct list sites, pools, jobs;
    struct list watches; /* pools without slots (watches.c) */
    struct timer look;
    uint64_t incarnations; /* number of incarnations that this process has assigned */
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
/* Returns the training of the pool's job; NULL: no worker has joined yet, or all workers have
 * ended. */
struct job *slots_training(const struct slots_job *job);
/* Returns the next incarnation. It is larger than all incarnations of earlier processes of the
 * coordinator. */
uint64_t slots_next_incarnation(struct service *s);
/* Schedules a check of all jobs. The event loop runs the check after the caller has returned. */
void slots_look_soon(struct service *s);

/* --- pool.c --- */

/* Creates a pool that is not connected. NULL: no memory. */
struct slots_pool *slots_pool_create(struct slots_site *site, struct tenant *tenant,
                                     uint64_t number, const char *node, uint32_t pid);
/* Waits until the pool connects again, for SLOTS_AWAY_NS. */
void slots_pool_await(struct slots_pool *pool);
bool slots_pool_has_jobs(const struct slots_pool *pool);
/* Frees the pool if it is not connected and has no job. */
void slots_pool_check(struct slots_pool *pool);
void slots_pool_free(struct slots_pool *pool);
/* Writes "the pool on node7 (pid 4242)". Returns `buffer`. */
const char *slots_pool_name(const struct slots_pool *pool, char *buffer, size_t buffer_bytes);

/* --- decide.c --- */

/* Passes an event to the scheduler, and sets the scheduler's actions in the workers. Returns 0 or a
 * negative errno of scheduler_step(). */
int slots_decide(struct slots_site *site, struct scheduler_event event);
/* Adds the job to the queue of the scheduler. `followers`: number of jobs of the study that are
 * submitted next. */
int slots_decide_submit(struct slots_job *job, uint32_t followers);
/* Returns whether the job must keep its present workers (SL5). */
bool slots_must_hold(const struct slots_job *job);

/* --- jobs.c --- */

/* Creates a job that is neither in a list nor in the store. NULL: no memory. */
struct slots_job *slots_job_create(struct slots_pool *pool, const char *name, const char *study,
                                   uint32_t workers_min, uint32_t workers_max);
void slots_job_free(struct slots_job *job);
void slots_job_row(const struct slots_job *job, struct store_row *ret_row);
/* Stores the job without its ranks. Returns 0 or a negative errno. */
int slots_job_keep(const struct slots_job *job, struct err *err);
/* Stores the rank of a job. Returns 0 or a negative errno, which is logged. */
int slots_worker_keep(const struct slots_job *job, uint32_t rank);
/* Stores all ranks of a job whose orders are stored, in one transaction. An error is logged. */
void slots_workers_keep(const struct slots_job *job);
/* Frees the slot of the rank, because the rank's process has ended or was never ordered. */
void slots_worker_out(struct slots_job *job, uint32_t rank);
/* Orders all workers of the job to end. `code` and `text` are sent with POOL_OVER. */
void slots_job_end(struct slots_job *job, int code, const char *text);
uint32_t slots_job_count_workers(const struct slots_job *job);
/* Holds the workers of the job if they have to be held now; otherwise ends the hold. */
void slots_job_hold(struct slots_job *job);

/* --- orders.c --- */

/* Carries out the changes of the workers of the site: resizes jobs, stores orders, and sends them
 * to pools. Jobs of the site may be freed. */
void slots_carry_out(struct slots_site *site);
/* Deletes the job, and sends POOL_OVER to its pool. */
void slots_job_over(struct slots_job *job);

/* Orders the pool to end a process whose start is not the rank's newest one. */
void slots_send_end(const struct slots_job *job, uint32_t rank, uint64_t incarnation);

/* Informs the pool that its job rests or goes on. */
void slots_send_rest(const struct slots_job *job, bool rests);

/* --- asleep.c --- */

/* Prepares the workers for a rest that the scheduler has ordered: a worker that cannot sleep has to
 * leave. */
void slots_rest_begin(struct slots_job *job);
/* Ends the rest of the job, because the scheduler has given the rank a slot. Returns false if no
 * process of the rank sleeps, so that a process has to be started. */
bool slots_rest_wake(struct slots_job *job, uint32_t rank, uint32_t slot);

/* --- rest.c --- */

/* Lets the workers of the training sleep or wake, as the scheduler has ordered. */
void slots_rest_carry_out(struct slots_job *job, struct job *of);
/* Informs the pool, which has joined again, whether its job rests. */
void slots_rest_repeat(const struct slots_job *job);
/* Informs the scheduler whether the job may rest without an order of its user. */
void slots_rest_allow(struct slots_job *job, const struct job *of);
/* Called when the worker sleeps in the rest with this number: the worker's slot becomes free.
 * Ignored if the job is not in this rest. */
void slots_hear_resting(struct slots_job *job, uint32_t rank, uint32_t rest);

/* --- reports.c --- */

/* Marks the worker of the rank as started, because its process exists. */
void slots_worker_found(struct slots_job *job, uint32_t rank);
/* Stores workers as started that exist, and whose earlier change to this state could not be
 * stored. */
void slots_find_again(struct slots_job *job);
/* Frees the slot of a rank whose process has ended, although its pool has not reported the end. If
 * the rank has ended its training, no other worker of the job is started. */
void slots_worker_gone(struct slots_job *job, uint32_t rank);

/* --- absent.c --- */

/* Checks the sessions of a job whose pool is missing. The slot of an ended session becomes free. A
 * job that no worker has joined ends after SLOTS_FORGET_S. */
void slots_look_without_pool(struct slots_job *job);
/* Returns the time in seconds after which the job is removed, because its pool is missing and no
 * worker has joined; 0: the job is not removed. */
uint32_t slots_removed_in_s(const struct slots_job *job);

/* --- ended.c --- */

struct slots_ended *slots_ended_create(void); /* NULL: no memory */
void slots_ended_destroy(struct slots_ended *all);

/* --- watches.c --- */

/* Checks that no other pool without slots has the job. Returns 0 or -EEXIST. `pool`: number of the
 * pool that may have the job; 0: none. */
int slots_check_watch(const struct service *s, const struct tenant *tenant, const char *job,
                      uint64_t pool, struct err *err);
/* Removes the watches of the connection. NULL: all watches. */
void slots_watches_forget(const struct slots *slots, const struct peer *peer);

/* --- speed.c --- */

/* Passes the progress of the job to the scheduler. */
void slots_look_at_speed(struct slots_job *job, const struct job *of);

#endif
