/* The jobs of `faults` and the processes of their workers: started, watched, reaped, started
 * again. */
#ifndef GRADPOOL_BENCH_FAULTS_COMPANY_H
#define GRADPOOL_BENCH_FAULTS_COMPANY_H

#include "bench/faults/blame.h"
#include "bench/faults/faults.h"
#include "bench/faults/worker/member.h"
#include "bench/lib/own_service.h"

#include <stdbool.h>
#include <stddef.h>

#define JOBS 6    /* sums over shm and tcp, update rules over both, and the elastic ones */
#define ELASTIC 4 /* the first whose workers come and go: sums; the other has an update rule */
#define PAIR 2    /* workers of each other job */
#define WORKERS_MAX MEMBERS_MOST

struct trainer {
    pid_t pid;       /* 0: gone */
    int fd;          /* pidfd */
    uint32_t coming; /* number of starts of the process (elastic jobs) */
    bool was_killed; /* the bench killed the process with signal 9 */
    struct blame_hurts hurts;
    uint64_t due_ns; /* time of the next start of an absent member */
};

struct job {
    char name[32];
    uint32_t number; /* number of starts of the job */
    struct trainer trainers[WORKERS_MAX];
    /* time at which a worker was lost without a request to leave; 0: no worker was lost */
    uint64_t broken_ns;
    uint32_t wanted; /* members of an elastic job that the last resize asked for */
    bool has_begun;  /* the first members of an elastic job have results */
};

struct company {
    const struct faults *about;
    struct faults_result *result;
    const struct service *service;
    struct job jobs[JOBS];
    struct blame_losses losses;
    struct company_memory {
        struct victim_board boards[JOBS][WORKERS_MAX];
        struct ledger ledgers[JOBS - ELASTIC];
        struct mirror_book book;
    } * memory; /* shared with them */
};

/* -ENOMEM. The first company_tend() starts the workers. */
int company_init(struct company *c);
void company_fini(struct company *c);

/* Reaps ended workers, kills workers that should have ended long ago, and if `starts_anew` starts
 * missing workers. */
int company_tend(struct company *c, bool starts_anew);
/* Sleeps until `until_ns` or until a worker ends. */
void company_sleep(const struct company *c, uint64_t until_ns);
size_t company_alive(const struct company *c);
/* Asks all workers to end. Members without a result are killed, because the other members of their
 * first round end. */
void company_order_end(struct company *c);

/* Returns whether strikes may hit the job: an elastic job not before its first members have
 * results. */
bool company_may_strike(const struct company *c, size_t job);
uint64_t company_seed(const struct company *c, size_t job);
struct victim_board *company_board(const struct company *c, size_t job, uint32_t rank);
/* Enters a strike at `at_ns` that may end the worker. */
void company_hurt(struct company *c, size_t job, uint32_t rank, uint64_t at_ns);
/* Kills the worker with signal 9, as an expected end. */
void company_kill(struct company *c, size_t job, uint32_t rank);
/* Reports an unexpected end of a process, which fails the run. */
void company_note_crash(struct company *c, const char *who, pid_t pid, int status);
/* Called before a worker is killed: other members no longer have to agree with the worker's last
 * result. */
void company_doom(struct company *c, size_t job, uint32_t rank);

#endif
