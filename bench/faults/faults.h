/* `gradpool-bench faults`: kills, stops, cuts and planned ends at random beside a hostile tenant,
 * while every element of every round is checked. */
#ifndef GRADPOOL_BENCH_FAULTS_H
#define GRADPOOL_BENCH_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#define FAULTS_LONG_S 60 /* shorter runs have shorter attacks, and longer rests of workers */

struct faults {
    uint64_t seconds, seed;
};

struct faults_result {
    uint64_t rounds, elements_checked, wrong;
    uint64_t kills_aggregator, kills_worker, kills_coordinator, stops, cuts;
    uint64_t restarts;          /* planned restarts of the coordinator (SIGTERM and a start) */
    uint64_t retired;           /* planned ends of aggregators (SIGTERM) */
    uint64_t attacks;           /* attacks of the hostile tenant */
    uint64_t attack_kinds;      /* kinds of attack that did something */
    uint64_t rounds_elastic;    /* part of `rounds` in elastic jobs */
    uint64_t comings, resizes;  /* members that came again; resizes done as asked */
    uint64_t drains, undone;    /* aggregators drained; drains undone */
    uint64_t drains_refused;    /* refused commands of both kinds */
    uint64_t snapshots;         /* snapshots with the right contents */
    uint64_t snapshots_refused; /* snapshots refused with a sentence */
    uint64_t hangs;             /* calls of more than 2 s beyond their deadline */
    uint64_t errors;            /* errors that calls of workers returned */
    /* errors about lost copies after the ends of two aggregators (owner and replica holder) */
    uint64_t copies_lost;
    uint64_t unnamed; /* errors and refusals whose text names no cause */
    uint64_t crashes; /* unexpected ends of processes */
    uint64_t longest_wait_ns;
};

/* Returns whether the run has a result that is wrong in any case. */
bool faults_failed(const struct faults_result *result);
/* Starts and ends a separate service, and keeps the service's log if there was a failure. Negative
 * errno with a text on standard error: the run could not be done. Failures of jobs are in the
 * result. */
int faults_run(const struct faults *faults, struct faults_result *ret_result);

#endif
