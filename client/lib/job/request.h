/* Requests. A push takes a request from the job's pool, and a wait returns the request to the
 * pool. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_REQUEST_H
#define GRADPOOL_CLIENT_LIB_JOB_REQUEST_H

#include "client/lib/job/job.h"

struct row_call;

/* Time for which a thread has waited for a request without progress, and the time of the next
 * warning. */
struct stall {
    uint64_t since_ns, due_ns; /* since_ns: 0 until a thread waits for the request */
    bool is_told;              /* a warning was logged */
};

struct gp_request {
    struct list node; /* node in job.requests, job.pool or client.abandoned */
    gp_client *client;
    struct gp_job *job;  /* NULL: the job was left */
    struct list waiting; /* tensors whose round is still in progress */
    struct list landed;  /* tensors with a result that must be copied to the caller's memory */
    struct list copying; /* tensors whose result a thread copies now */
    struct list done;
    struct row_call *rows; /* pull or push of a table; NULL: rounds of tensors */
    struct err err;
    uint64_t polled_ns; /* time of calls of gp_poll() without a result */
    struct stall stall;
    /* Number of queries to lanes (stall.c) that have no answer yet. */
    uint32_t queries;
    /* number of the newest gradient of this rank, if a round may have several; 0 is the first
     * one */
    uint8_t gradient;
    /* the first answer to a query that names missing ranks: tensor, round, ranks */
    const struct gp_tensor *missing_tensor;
    uint64_t missing_round;
    uint64_t missing[RECORD_MISSING_WORDS];
    /* the ranks in `missing` have pushed, but their memory cannot be read */
    bool missing_have_pushed;
};

/* Returns a request from the pool; NULL: no memory is left. */
struct gp_request *request_take(struct gp_job *job);
/* Fails the request. Does nothing if the request is over, or has failed before. */
void request_fail(struct gp_request *q, int code, const char *text);
/* Returns the request to the pool. Its tensors may be pushed again. */
void request_release(struct gp_request *q);
/* Moves the request of a job that is being freed to the client, because the caller of the API still
 * has a pointer to the request. Called with the client's lock held (L14). */
void request_abandon(struct gp_request *q);
/* Returns whether the request has failed, but lanes may still use lent memory of its other tensors
 * (L2). */
bool request_still_lends(const struct gp_request *q);
bool request_is_over(const struct gp_request *q);
/* Returns whether the request is the announcement of this rank's gradient in a job with backup
 * workers, and the leader lane wants another gradient of the same round. */
bool request_goes_on(const struct gp_request *q);
/* Returns whether a waiting thread has something to do: the request is over, has a result to copy
 * out, or request_goes_on(). A condition for engine_run(). */
bool request_has_news(void *request);

#endif
