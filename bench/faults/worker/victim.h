/* One worker of a job to which bad things happen: pushes gradients to be summed, or to make steps
 * of parameters, checks every element of every result, notes how long it waited and what it was
 * told when something failed. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_VICTIM_H
#define GRADPOOL_BENCH_FAULTS_WORKER_VICTIM_H

#include "client/gradpool.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define VICTIM_TEXT_BYTES 512
#define VICTIM_WAIT_MS 8000    /* deadline of each wait */
#define VICTIM_TIMEOUT "15000" /* GRADPOOL_TIMEOUT_MS of each worker */
#define VICTIM_SET_ROUNDS 48   /* parameters are set anew so often */

/* Shared with the conductor; one a worker. */
struct victim_board {
    _Atomic uint32_t ends;   /* rank 0 tells the others, behind a round */
    _Atomic uint32_t stops;  /* how often it was stopped: its clock says nothing then */
    _Atomic uint32_t wanted; /* of a member: the workers that it is to ask for; 0: no matter */
    uint64_t resizes;        /* that were done as it asked */
    uint64_t rounds, elements_checked, wrong, hangs, longest_wait_ns;
    uint64_t unnamed;     /* errors after which it went on, and that name nobody */
    uint64_t patience_ns; /* how long the last call may take (timed.h) */
    int code;             /* why it ended; 0: told to, or killed */
    uint64_t failed_ns;   /* when that came */
    char text[VICTIM_TEXT_BYTES];
};

struct victim {
    const char *endpoint, *transport, *job;
    uint32_t rank, workers;
    bool updates; /* momentum and Adam, with copies of parameters and moments; else sums */
    enum gp_durability durability; /* where these lie */
    uint64_t seed, compute_ns;     /* the pause of the worker in each round */
    struct victim_board *board;
};

/* A tensor of those that have update rules, numbered from 1; "tensor.N". False: there is none. */
struct victim_rule {
    uint64_t elements;
    enum gp_rule rule;
};
bool victim_rule(size_t tensor, struct victim_rule *ret_rule);
/* gp_connect(), again for some seconds where no coordinator answers: ours may just be killed. */
int victim_connect(struct victim_board *board, const char *endpoint, const char *transport,
                   gp_client **ret_client);
/* Likewise. */
int victim_join(struct victim_board *board, gp_client *client, const gp_job_spec *spec,
                gp_job **ret_job);
/* As gp_tensors_declare() and gp_job_leave(). */
int victim_declare(struct victim_board *board, gp_job *job, const gp_tensor_spec *specs,
                   size_t count, gp_tensor **ret_tensors);
void victim_leave(struct victim_board *board, gp_job *job);
/* One wait, again after its deadline, some times. -ETIMEDOUT: nothing came, which is a hang. */
int victim_wait(struct victim_board *board, gp_request *request);
/* Keeps the text of what has just failed; returns `code`. */
int victim_fail(struct victim_board *board, int code);
/* Returns when told to end, or when its job has failed: 0, or a negative errno. */
int victim_run(const struct victim *victim);

#endif
