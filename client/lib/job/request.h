/* Requests, from the push that takes one out of the job's pool to the wait that returns it. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_REQUEST_H
#define GRADPOOL_CLIENT_LIB_JOB_REQUEST_H

#include "client/lib/job/job.h"

/* Timing of a request for which a thread waits: the last arrival of a message, and the time at
 * which a stall is logged. */
struct stall {
    uint64_t since_ns, due_ns; /* since: 0 until a thread waits */
    bool is_told;
};

struct gp_request {
    struct list node; /* node in job.requests, job.pool or client.abandoned */
    gp_client *client;
    struct gp_job *job;  /* NULL: the worker has left the job */
    struct list waiting; /* tensors whose round is still in progress */
    struct list landed;  /* tensors whose result has to be copied out */
    struct list done;
    struct err err;
    uint64_t polled_ns; /* time spent in gp_poll() without a result */
    struct stall stall;
    /* Answers of lanes about the ranks that have not pushed (stall.c). */
    uint32_t queries;
    const struct gp_tensor *missing_tensor;
    uint64_t missing_round;
    uint64_t missing[RECORD_MISSING_WORDS];
    /* the ranks in `missing` have pushed, but their memory does not answer */
    bool missing_have_pushed;
};

/* Takes a request from the pool. NULL: no memory. */
struct gp_request *request_take(struct gp_job *job);
/* Fails the request. Does nothing if all its results have arrived. */
void request_fail(struct gp_request *q, int code, const char *text);
/* Returns the request to the pool. Its tensors may be pushed again. */
void request_release(struct gp_request *q);
/* Separates the request from a job that is being freed, because the caller of the API still has the
 * request. Called with the client's lock held (L14). */
void request_abandon(struct gp_request *q);
bool request_is_over(const struct gp_request *q);
/* Returns whether the request is over or has a result to copy out. For engine_run() and others. */
bool request_has_news(void *request);

#endif
