/* A whole job, or several, in one thread on a virtual clock: real lanes over fabric_mem, workers
 * that follow the client's protocol, and this file's caller as the coordinator and as fate.
 * test/sim/README.md: what holds after every step (S1, S2, ...). A broken invariant fails the
 * running cmocka case and names the seed. */
#ifndef GRADPOOL_TEST_SIM_H
#define GRADPOOL_TEST_SIM_H

#include "test/fabric_mem/fabric_mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How workers reach the lanes. Mixed: each in its own way, like those of one host among others. */
enum sim_reach { SIM_MESSAGES, SIM_MAPPED, SIM_MIXED };

/* Pieces are plain sums of all ranks, or of every kind, or all have an update rule. */
enum sim_kinds { SIM_KINDS_PLAIN, SIM_KINDS_MIXED, SIM_KINDS_UPDATE };

/* A post that fails on purpose, once: of the first lane, or of the last rank of the first job. */
struct sim_fault {
    uint64_t post; /* the n-th from the start; 0: none */
    enum mem_fault fault;
    bool is_worker;
};

struct sim_options {
    uint64_t seed; /* decides delays, orders and contents */
    uint32_t lanes, jobs, workers, pieces, rounds;
    uint64_t elements_most; /* of a piece */
    bool is_exact;          /* so many, not up to so many */
    enum sim_kinds kinds;
    bool has_copies; /* of states, in workers' memory: they outlive their lanes */
    enum sim_reach reach;
    uint32_t queue_depth; /* 0: the network's default */
    uint64_t delay_max_ns;
    uint32_t payload_bytes_max; /* longer inputs do not travel inline */
    bool laps;                  /* workers announce the next round early, from a second buffer */
    bool repeats;               /* workers say again what they said */
    bool leaves_early;          /* workers go once they hold their last results */
    uint32_t stops;             /* how often some worker is stopped for long */
    uint32_t moves;             /* how often a piece is moved away from a lane that lives */
    uint32_t handovers;         /* how often lanes hand one to each other while it is in use */
    uint32_t lane_deaths, worker_deaths;
    uint32_t cuts; /* how often a worker loses a connection, and lives */
    struct sim_fault fault;
    uint64_t allocation_fails; /* the n-th of all lanes from the first poll on; 0: none */
};

/* What a run was, for tests that look at it from outside. */
struct sim_result {
    uint64_t transcript; /* hash of every event of everybody */
    uint64_t turns, rounds, results, commits, repeats, laps, deaths, standings, comebacks;
    uint64_t handovers, undone; /* came to an end, either way */
    uint64_t jobs_done, jobs_failed;
    uint64_t losses;      /* of what a lane kept: its workers were told */
    uint64_t bits;        /* hash of all results whose bits are fixed by their inputs */
    uint64_t posts;       /* of whom the sim_fault names */
    uint64_t allocations; /* from the first poll on */
};

/* A random mixture: every draw of `seed` is another world. */
struct sim_options sim_options_draw(uint64_t seed);

/* A broken invariant ends the process with this code, for tests that want it to be found. */
void sim_exit_on_failure(int code);

/* Runs until every job has finished or failed, drops them, and checks that nothing is left. */
struct sim_result sim_run(const struct sim_options *options);

#endif
