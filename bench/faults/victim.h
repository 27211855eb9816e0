/* One worker of a job to which bad things happen: pushes gradients to be summed, or to make steps
 * of parameters, checks every element of every result, notes how long it waited and what it was
 * told when something failed. */
#ifndef GRADPOOL_BENCH_FAULTS_VICTIM_H
#define GRADPOOL_BENCH_FAULTS_VICTIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define VICTIM_TEXT_BYTES 512
#define VICTIM_WAIT_MS 8000 /* deadline of each wait */

/* Shared with the conductor; one a worker. */
struct victim_board {
    _Atomic uint32_t ends;  /* rank 0 tells the others, behind a round */
    _Atomic uint32_t stops; /* how often it was stopped: its clock says nothing then */
    uint64_t rounds, elements_checked, wrong, hangs, longest_wait_ns;
    int code; /* why it ended; 0: told to, or killed */
    char text[VICTIM_TEXT_BYTES];
};

struct victim {
    const char *endpoint, *transport, *job;
    uint32_t rank, workers;
    bool updates; /* momentum and Adam, with copies of parameters and moments; else sums */
    uint64_t seed;
    struct victim_board *board;
};

/* Returns when told to end, or when its job has failed: 0, or a negative errno. */
int victim_run(const struct victim *victim);

#endif
