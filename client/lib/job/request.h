/* Requests: from the push that takes one to the wait that gives it back to the job's pool. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_REQUEST_H
#define GRADPOOL_CLIENT_LIB_JOB_REQUEST_H

#include "client/lib/job/job.h"

/* Of a request that a thread waits for: the last time something came, and when to log a stall. */
struct stall {
    uint64_t since_ns, due_ns; /* since: 0 while no thread has waited */
    bool is_told;
};

struct gp_request {
    struct list node; /* in job.requests, job.pool or client.abandoned */
    gp_client *client;
    struct gp_job *job;  /* NULL: the job was left */
    struct list waiting; /* tensors whose round goes on */
    struct list landed;  /* tensors whose result is to be copied out */
    struct list done;
    struct err err;
    uint64_t polled_ns; /* waited in gp_poll(), all in vain */
    struct stall stall;
    /* Answers of lanes about the ranks that have not pushed (stall.c). */
    uint32_t queries;
    const struct gp_tensor *missing_tensor;
    uint64_t missing_round;
    uint64_t missing[RECORD_MISSING_WORDS];
    bool missing_have_pushed; /* ranks of `missing` have pushed; their memory does not answer */
};

/* NULL: out of memory. */
struct gp_request *request_take(struct gp_job *job);
/* No effect on a request whose results are all here. */
void request_fail(struct gp_request *q, int code, const char *text);
/* Back to the pool; its tensors may be pushed again. */
void request_release(struct gp_request *q);
/* The job goes, the caller of the API still has the request. With the client's lock held (L14). */
void request_abandon(struct gp_request *q);
bool request_is_over(const struct gp_request *q);
/* Over, or there is a result to be copied out. For engine_run() and others. */
bool request_has_news(void *request);

#endif
