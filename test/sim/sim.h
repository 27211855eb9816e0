/* One or several whole jobs in one thread on a virtual clock: real lanes over fabric_mem,
 * workers that follow the client's protocol, and simulated coordinator, kills and stops.
 * test/sim/README.md has the invariants that hold after every step (S1, S2, ...). A broken
 * invariant fails the running cmocka case and prints the seed. */
#ifndef GRADPOOL_TEST_SIM_H
#define GRADPOOL_TEST_SIM_H

#include "test/fabric_mem/fabric_mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The way in which workers reach the lanes. Mixed: each worker in another way. */
enum sim_reach { SIM_MESSAGES, SIM_MAPPED, SIM_MIXED };

/* Kinds of pieces: plain sums of all ranks, or every kind, or all with an update rule. */
enum sim_kinds { SIM_KINDS_PLAIN, SIM_KINDS_MIXED, SIM_KINDS_UPDATE };

/* A post that fails on purpose, once. The post is one of the first lane, or of the last rank of the
 * first job. */
struct sim_fault {
    uint64_t post; /* number of the post from the start; 0: none */
    enum mem_fault fault;
    bool is_worker;
};

struct sim_options {
    uint64_t seed; /* decides delays, orders and contents */
    uint32_t lanes, jobs, workers, pieces, rounds;
    uint64_t elements_most; /* most elements of a piece */
    bool is_exact; /* lanes, jobs, workers and pieces have exactly these numbers; false: at most */
    enum sim_kinds kinds;
    bool has_copies; /* copies of states in workers' memory, which outlive their lanes */
    enum sim_reach reach;
    uint32_t queue_depth; /* 0: the network's default */
    uint64_t delay_max_ns;
    uint32_t payload_bytes_max; /* longer inputs do not travel inline */
    bool laps;                  /* workers announce the next round early, from a second buffer */
    bool repeats;               /* workers repeat announcements */
    bool leaves_early;          /* workers leave once they hold their last results */
    uint32_t stops;             /* long stops of workers */
    uint32_t moves;             /* moves of a piece away from a live lane */
    uint32_t handovers;         /* moves of a piece in use from lane to lane */
    uint32_t lane_deaths, worker_deaths;
    uint32_t cuts; /* number of times that a live worker loses a connection */
    struct sim_fault fault;
    /* number of the failing allocation of all lanes, counted from the first poll; 0: none */
    uint64_t allocation_fails;
};

/* Figures of a run, for tests. */
struct sim_result {
    uint64_t transcript; /* hash of every event of all lanes and workers */
    uint64_t turns, rounds, results, commits, repeats, laps, deaths, standings, comebacks;
    uint64_t handovers, undone; /* moves of pieces in use: completed; undone */
    uint64_t jobs_done, jobs_failed;
    uint64_t losses;      /* losses of lane state that workers were informed of */
    uint64_t bits;        /* hash of all results whose bits are fixed by their inputs */
    uint64_t posts;       /* posts of the side that sim_fault names */
    uint64_t allocations; /* allocations from the first poll on */
};

/* Returns a random mixture of options: every `seed` draws another world. */
struct sim_options sim_options_draw(uint64_t seed);

/* Makes a broken invariant end the process with this code, for tests that expect one. */
void sim_exit_on_failure(int code);

/* Runs until every job has finished or failed, drops the jobs, and checks that no memory
 * remains. */
struct sim_result sim_run(const struct sim_options *options);

#endif
