/* `gradpool-bench faults`: kills, stops, cuts and planned ends at random beside a hostile tenant,
 * while every element of every round is checked. */
#ifndef GRADPOOL_BENCH_FAULTS_H
#define GRADPOOL_BENCH_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#define FAULTS_LONG_S 60 /* shorter runs have shorter attacks, and workers that rest for longer */

struct faults {
    uint64_t seconds, seed;
};

struct faults_result {
    uint64_t rounds, elements_checked, wrong;
    uint64_t kills_aggregator, kills_worker, kills_coordinator, stops, cuts;
    uint64_t restarts;          /* of the coordinator, as planned: SIGTERM and a start */
    uint64_t retired;           /* aggregators, as planned: SIGTERM */
    uint64_t attacks;           /* of the hostile tenant ... */
    uint64_t attack_kinds;      /* kinds of attack that did something */
    uint64_t rounds_elastic;    /* of all rounds: of jobs whose workers come and go */
    uint64_t comings, resizes;  /* of their members, again; done as asked */
    uint64_t drains, undone;    /* of aggregators; given back */
    uint64_t drains_refused;    /* of both */
    uint64_t snapshots;         /* that were right */
    uint64_t snapshots_refused; /* there is none, and a sentence why */
    uint64_t hangs;             /* calls of more than 2 s beyond their deadline */
    uint64_t errors;            /* that workers were told */
    uint64_t copies_lost;       /* of these: two aggregators ended, an owner and its keeper */
    uint64_t unnamed;           /* of these, and of refusals, whose text names nobody */
    uint64_t crashes;           /* ends of processes that nobody has asked for */
    uint64_t longest_wait_ns;
};

/* Whether something went wrong that must not, whatever is done. */
bool faults_failed(const struct faults_result *result);
/* Starts and ends its own service, whose log it keeps where something went wrong. Negative errno,
 * with a text on standard error: it could not be done; whatever went wrong with the jobs is in the
 * result. */
int faults_run(const struct faults *faults, struct faults_result *ret_result);

#endif
