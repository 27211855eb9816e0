/* One worker of a job under strikes. The worker pushes gradients for sums or updates, checks every
 * element of every result, and records its longest wait and its last error. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_VICTIM_H
#define GRADPOOL_BENCH_FAULTS_WORKER_VICTIM_H

#include "client/gradpool.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define VICTIM_TEXT_BYTES 512
#define VICTIM_WAIT_MS 8000    /* deadline of each wait */
#define VICTIM_TIMEOUT "15000" /* GRADPOOL_TIMEOUT_MS of each worker */
#define VICTIM_SET_ROUNDS 48   /* number of rounds between two broadcasts of parameters */

/* Memory shared with the conductor, one struct for each worker. */
struct victim_board {
    _Atomic uint32_t ends; /* set when the run ends; rank 0 then announces the end in a round */
    /* number of stops by the bench; a duration that includes a stop does not count */
    _Atomic uint32_t stops;
    /* number of workers that the member requests by gp_job_resize(); 0: no resize */
    _Atomic uint32_t wanted;
    uint64_t resizes; /* number of resizes done as requested */
    uint64_t rounds, elements_checked, wrong, hangs, longest_wait_ns;
    uint64_t unnamed;     /* number of errors without a cause that did not end the worker */
    uint64_t patience_ns; /* longest duration of the last call (timed.h) */
    int code;             /* error that ended the worker; 0: ordered end, or killed */
    uint64_t failed_ns;   /* time of the last error */
    char text[VICTIM_TEXT_BYTES];
};

struct victim {
    const char *endpoint, *transport, *job;
    uint32_t rank, workers;
    /* true: the job updates with momentum and Adam, and has copies of the state; false: the job
     * sums */
    bool updates;
    enum gp_durability durability; /* place of the copies */
    /* `compute_ns` is the time for which the worker pauses in each round */
    uint64_t seed, compute_ns;
    struct victim_board *board;
};

/* Returns tensor number N, from 1, with the name "tensor.N" and an update rule. False: no such
 * tensor. */
struct victim_rule {
    uint64_t elements;
    enum gp_rule rule;
};
bool victim_rule(size_t tensor, struct victim_rule *ret_rule);
/* Calls gp_connect() repeatedly, for some seconds, because a strike may have killed the
 * coordinator. */
int victim_connect(struct victim_board *board, const char *endpoint, const char *transport,
                   gp_client **ret_client);
/* Calls gp_job_join(), repeated like victim_connect(). */
int victim_join(struct victim_board *board, gp_client *client, const gp_job_spec *spec,
                gp_job **ret_job);
/* Call gp_tensors_declare() and gp_job_leave(). */
int victim_declare(struct victim_board *board, gp_job *job, const gp_tensor_spec *specs,
                   size_t count, gp_tensor **ret_tensors);
void victim_leave(struct victim_board *board, gp_job *job);
/* Waits for the request, and repeats the wait after a time-out. -ETIMEDOUT: no attempt had a
 * result, which counts as a hang. */
int victim_wait(struct victim_board *board, gp_request *request);
/* Stores the text of the last error for the conductor; returns `code`. */
int victim_fail(struct victim_board *board, int code);
/* Runs the worker until its ordered end, or until an error of the job. Returns 0 or a negative
 * errno. */
int victim_run(const struct victim *victim);

#endif
