/* `gradpool-bench faults`: random kills, stops, cut connections and planned ends beside a hostile
 * tenant. Every element of every round is checked. */
#ifndef GRADPOOL_BENCH_FAULTS_H
#define GRADPOOL_BENCH_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

/* shorter runs (in seconds) have shorter attacks, and longer pauses of workers */
#define FAULTS_LONG_S 60

struct faults {
    uint64_t seconds, seed;
};

struct faults_result {
    uint64_t rounds, elements_checked, wrong;
    uint64_t kills_aggregator, kills_worker, kills_coordinator, stops, cuts;
    /* number of planned restarts of the coordinator (SIGTERM and a start) */
    uint64_t restarts;
    uint64_t retired;        /* number of planned ends of aggregators (SIGTERM) */
    uint64_t attacks;        /* attacks of the hostile tenant */
    uint64_t attack_kinds;   /* number of kinds of attack that took effect */
    uint64_t rounds_elastic; /* number of rounds of elastic jobs, which `rounds` includes */
    /* number of times that a member joined again; number of successful resizes */
    uint64_t comings, resizes;
    uint64_t drains, undone;    /* numbers of drained aggregators and of undone drains */
    uint64_t drains_refused;    /* refused drains and undos */
    uint64_t snapshots;         /* snapshots with the right contents */
    uint64_t snapshots_refused; /* refused snapshots with a reason */
    uint64_t hangs;             /* number of calls that returned over 2 s after their deadline */
    uint64_t errors;            /* errors that workers' calls returned */
    /* number of errors about lost copies after the ends of owner and replica holder */
    uint64_t copies_lost;
    uint64_t unnamed; /* number of errors and refusals whose text names no cause */
    uint64_t crashes; /* unexpected ends of processes */
    uint64_t longest_wait_ns;
};

/* Returns whether the run has failed. */
bool faults_failed(const struct faults_result *result);
/* Runs faults against a separate service, which is started and ended here. After a failure the log
 * of the service is kept. Returns a negative errno, with a text on standard error, if the run was
 * not possible. Failures of jobs are in the result. */
int faults_run(const struct faults *faults, struct faults_result *ret_result);

#endif
