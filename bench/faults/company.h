/* The jobs of `faults` and their worker processes: start, wait, restart. */
#ifndef GRADPOOL_BENCH_FAULTS_COMPANY_H
#define GRADPOOL_BENCH_FAULTS_COMPANY_H

#include "bench/faults/blame.h"
#include "bench/faults/faults.h"
#include "bench/faults/worker/member.h"
#include "bench/lib/own_service.h"

#include <stdbool.h>
#include <stddef.h>

/* number of jobs: sums over shm and tcp, update rules over shm and tcp, two elastic jobs */
#define JOBS 6
/* index of the first elastic job, which sums; the second elastic job has an update rule */
#define ELASTIC 4
#define PAIR 2 /* number of workers of a job that is not elastic */
#define WORKERS_MAX MEMBERS_MOST

struct trainer {
    pid_t pid;       /* process id; 0: the process has ended */
    int fd;          /* pidfd of the process */
    uint32_t coming; /* number of starts of the process, for elastic jobs */
    bool was_killed; /* whether the bench killed the process with signal 9 */
    struct blame_hurts hurts;
    uint64_t due_ns; /* time of the next start of an absent member */
};

struct job {
    char name[32];
    uint32_t number; /* number of starts of the job */
    struct trainer trainers[WORKERS_MAX];
    /* time of the first unplanned loss of a worker; 0: none was lost */
    uint64_t broken_ns;
    uint32_t wanted; /* number of members that the last resize requested */
    bool has_begun;  /* whether the first members of an elastic job have results */
};

struct company_memory {
    struct victim_board boards[JOBS][WORKERS_MAX];
    struct ledger ledgers[JOBS - ELASTIC];
    struct mirror_book book;
};

struct company {
    const struct faults *about;
    struct faults_result *result;
    const struct service *service;
    struct job jobs[JOBS];
    struct blame_losses losses;
    struct company_memory *memory; /* memory shared with the workers */
};

/* Prepares the jobs. The first call of company_tend() starts the workers. Returns 0 or -ENOMEM. */
int company_init(struct company *c);
void company_fini(struct company *c);

/* Handles ended workers, kills workers that should have ended, and with `starts_anew` starts
 * missing workers. */
int company_tend(struct company *c, bool starts_anew);
/* Sleeps until `until_ns` or until a worker ends. */
void company_sleep(const struct company *c, uint64_t until_ns);
size_t company_alive(const struct company *c);
/* Sends all workers the order to end. Kills members that have no result yet, because their first
 * round would wait for members that end. */
void company_order_end(struct company *c);

/* Returns whether strikes may hit the job. An elastic job is excluded until its first members have
 * results. */
bool company_may_strike(const struct company *c, size_t job);
uint64_t company_seed(const struct company *c, size_t job);
struct victim_board *company_board(const struct company *c, size_t job, uint32_t rank);
/* Records a strike at `at_ns` that may end the worker. */
void company_hurt(struct company *c, size_t job, uint32_t rank, uint64_t at_ns);
/* Kills the worker with signal 9. This end is expected. */
void company_kill(struct company *c, size_t job, uint32_t rank);
/* Reports an unexpected end of a process, which fails the run. */
void company_note_crash(struct company *c, const char *who, pid_t pid, int status);
/* Announces that a worker will be killed: its last result need not agree with the results of other
 * members. */
void company_doom(struct company *c, size_t job, uint32_t rank);

#endif
