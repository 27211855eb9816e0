/* The jobs of `faults` and their workers' processes: started, looked after, buried, started anew.
 */
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
    uint32_t coming; /* of a member: how often it was started */
    bool was_killed; /* by ours */
    struct blame_hurts hurts;
    uint64_t due_ns; /* of a member that is gone: when it comes again */
};

struct job {
    char name[32];
    uint32_t number; /* how often it was started */
    struct trainer trainers[WORKERS_MAX];
    uint64_t broken_ns; /* since when somebody is gone who should not; 0: nobody is */
    uint32_t wanted;    /* members of an elastic one, as was asked for last */
    bool has_begun;     /* an elastic one: those that it began with have a result */
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

/* -ENOMEM. Nobody is started before the first company_tend(). */
int company_init(struct company *c);
void company_fini(struct company *c);

/* Buries who has ended, ends who should have long ago, starts who is missing if it is to. */
int company_tend(struct company *c, bool starts_anew);
/* Until then, or until a worker ends. */
void company_sleep(const struct company *c, uint64_t until_ns);
size_t company_alive(const struct company *c);
/* All are told to end; those who are still coming are killed: they would have nobody to sum with.
 */
void company_order_end(struct company *c);

/* Members of one, or a whole job, are not struck before it has begun. */
bool company_may_strike(const struct company *c, size_t job);
uint64_t company_seed(const struct company *c, size_t job);
struct victim_board *company_board(const struct company *c, size_t job, uint32_t rank);
/* Something was done to that worker then that may end it. */
void company_hurt(struct company *c, size_t job, uint32_t rank, uint64_t at_ns);
/* With -9, and it knows why. */
void company_kill(struct company *c, size_t job, uint32_t rank);
/* A process has ended in a way that nobody has asked for: that fails the run. */
void company_note_crash(struct company *c, const char *who, pid_t pid, int status);
/* Before a worker is killed: what it alone has heard of its last round counts no more. */
void company_doom(struct company *c, size_t job, uint32_t rank);

#endif
