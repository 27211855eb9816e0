/* Simulates whole jobs in one thread on a virtual clock. Lanes are real and run over fabric_mem.
 * Workers, coordinator, kills and stops are simulated. test/sim/README.md lists the invariants (S1,
 * S2, ...), which are checked after every step. A broken invariant fails the running cmocka case
 * and prints the seed. */
#ifndef GRADPOOL_TEST_SIM_H
#define GRADPOOL_TEST_SIM_H

#include "test/fabric_mem/fabric_mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How workers connect to lanes. SIM_MIXED: chosen at random for each worker. */
enum sim_reach { SIM_MESSAGES, SIM_MAPPED, SIM_MIXED };

/* Kinds of pieces. SIM_KINDS_PLAIN: sums of all ranks. SIM_KINDS_MIXED: every kind.
 * SIM_KINDS_UPDATE: all pieces have an update rule. */
enum sim_kinds { SIM_KINDS_PLAIN, SIM_KINDS_MIXED, SIM_KINDS_UPDATE };

/* One post that fails on purpose: a post of the first lane, or a post of the last rank of the first
 * job. */
struct sim_fault {
    uint64_t post; /* number of the post that fails, counted from the start; 0: no post fails */
    enum mem_fault fault;
    bool is_worker;
};

struct sim_options {
    uint64_t seed; /* seed of delays, orders and contents */
    uint32_t lanes, jobs, workers, pieces, rounds;
    uint64_t elements_most; /* maximum number of elements of a piece */
    /* true: the numbers of lanes, jobs, workers and pieces are exact; false: they are maxima */
    bool is_exact;
    enum sim_kinds kinds;
    bool has_copies; /* workers' memory contains copies of lane states, which survive the lanes */
    enum sim_reach reach;
    uint32_t queue_depth; /* 0: default of the network */
    uint64_t delay_max_ns;
    uint32_t payload_bytes_max; /* longer inputs are not sent inline */
    bool laps;                  /* workers announce the next round early, from a second buffer */
    bool repeats;               /* workers send announcements twice */
    bool leaves_early;          /* workers leave as soon as they have their last results */
    uint32_t stops;             /* number of long stops of workers */
    uint32_t moves;             /* number of moves of an unused piece away from a live lane */
    uint32_t handovers;         /* number of moves of a piece in use between lanes */
    uint32_t lane_deaths, worker_deaths;
    uint32_t cuts; /* number of lost connections of live workers */
    struct sim_fault fault;
    /* number of the failing allocation of all lanes, counted from the first poll; 0: none */
    uint64_t allocation_fails;
};

/* Figures of a run, for tests. */
struct sim_result {
    uint64_t transcript; /* hash of every event of all lanes and workers, in order */
    uint64_t turns, rounds, results, commits, repeats, laps, deaths, standings, comebacks;
    uint64_t handovers,
        undone; /* number of moves of pieces in use: completed moves; undone moves */
    uint64_t jobs_done, jobs_failed;
    uint64_t losses;      /* number of lost lane states of which workers were informed */
    uint64_t bits;        /* hash of all results whose bits depend on their inputs only */
    uint64_t posts;       /* number of posts of the side that sim_fault names */
    uint64_t allocations; /* allocations since the first poll */
};

/* Returns random options. Each seed gives another world. */
struct sim_options sim_options_draw(uint64_t seed);

/* A broken invariant ends the process with this exit status. For tests that expect one. */
void sim_exit_on_failure(int code);

/* Runs until every job has finished or failed, drops the jobs, and checks that no memory
 * remains. */
struct sim_result sim_run(const struct sim_options *options);

#endif
