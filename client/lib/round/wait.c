/* Waits for requests. The waiting thread copies results out, and releases the job's lock during
 * long copies (L2). Every wait has a deadline (L11). */
#include "client/lib/round/wait.h"

#include "client/lib/job/row_call.h"
#include "client/lib/job/tensor.h"
#include "client/lib/link/copy.h"
#include "client/lib/link/link.h"
#include "client/lib/round/round_end.h"
#include "client/lib/round/row_stall.h"
#include "client/lib/round/stall.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <stdlib.h>

/* Stores that a result of the open round is copied to the caller. The round is closed, so a GO_ON
 * of this round that arrives later has no effect. */
static void wait_note_copy(const struct gp_tensor *t)
{
    struct backup_rounds *b = &t->job->backup;
    if (b->phase == BACKUP_ANNOUNCED && terms_are_following(&t->terms))
        b->copied = b->held + 1;
}

/* Moves a tensor of the request to another list of the request. */
static void wait_move(struct gp_tensor *t, struct list *to)
{
    list_remove(&t->in_request);
    list_append(to, &t->in_request);
}

/* Copies a result, with the lock released if the copy is long. Another thread that polls the
 * request meanwhile waits for this copy, because the caller may write to the result as soon as the
 * request is over. */
static void wait_copy_result(struct gp_request *q, struct gp_tensor *t)
{
    struct gp_job *job = q->job;
    const void *landing = slabs_at(&job->slabs, t->open.landing);
    bool is_long = t->open.result_bytes > COPY_LOCKED_BYTES;
    size_t streams_from = copy_streams_from(job->staged_bytes);
    if (is_long) {
        wait_move(t, &q->copying);
        pthread_mutex_unlock(&job->lock);
    }
    copy_from_wire(t->open.result, landing, t->open.result_bytes,
                   (struct copy_dtypes){t->values, t->dtype}, streams_from);
    if (is_long)
        pthread_mutex_lock(&job->lock);
    if (is_long && job->engine.waiters > 0)
        engine_kick(&job->engine);
}

static void wait_copy_landed(struct gp_request *q)
{
    struct list *node;
    while (!q->err.code && (node = list_first(&q->landed))) {
        struct gp_tensor *t = list_entry(node, struct gp_tensor, in_request);
        trace_step(q->job->trace, t->open.traced_ns, TRACE_COPYING);
        wait_note_copy(t);
        wait_copy_result(q, t);
        trace_step(q->job->trace, t->open.traced_ns, TRACE_DONE);
        recorder_note(t);
        wait_move(t, &q->done);
    }
}

/* Copies pulled rows to the positions of their keys, with the lock released. */
static void wait_copy_rows(struct gp_request *q)
{
    struct row_call *call = q->rows;
    if (!call || q->err.code || !call->rows)
        return;
    void *rows = call->rows;
    call->rows = NULL;
    pthread_mutex_unlock(&q->job->lock);
    table_batch_spread(&call->batch->keys, call->requests, rows);
    pthread_mutex_lock(&q->job->lock);
}

/* Drives the engine until the request has news. The time of the wait is counted for the lane that
 * sent the last word, COMMIT or CLOSED, because this message ends the wait (L24). */
static bool wait_drive_until(struct gp_request *q, uint64_t began_ns, uint64_t deadline_ns)
{
    struct gp_job *job = q->job;
    progress_begin_wait(&job->progress, began_ns);
    bool has_come = engine_run(&job->engine, deadline_ns, request_has_news, q);
    uint64_t now_ns = clock_now_ns();
    progress_end_wait(&job->progress, now_ns);
    if (job->spoke)
        job->spoke->stalled_ns += now_ns - began_ns;
    return has_come;
}

/* Drives the engine, and logs a stall when a warning is due (L35). Returns false after the
 * deadline. */
static bool wait_drive(struct gp_request *q, uint64_t deadline_ns)
{
    uint64_t began_ns = clock_now_ns(), due_ns = stall_due(q, began_ns);
    if (due_ns >= deadline_ns)
        return wait_drive_until(q, began_ns, deadline_ns);
    if (!wait_drive_until(q, began_ns, due_ns))
        stall_warn(q);
    return true;
}

/* Copies results out as they land. Returns true when the request is over, or when its round
 * continues with another gradient; false after the deadline. */
static bool wait_finish(struct gp_request *q, uint64_t deadline_ns)
{
    for (;;) {
        if (request_has_news(q))
            stall_end(q);
        if (round_end_is_awaited(q))
            /* a result is not copied yet, because the script still computes a gradient with the
             * present parameters (L121) */
            return true;
        wait_copy_landed(q);
        if (request_is_over(q)) {
            wait_copy_rows(q);
            return true;
        }
        if (request_goes_on(q))
            return true;
        if (!wait_drive(q, deadline_ns))
            return false;
    }
}

int wait_locked(struct gp_request *q, uint64_t deadline_ns, uint64_t timeout_ns)
{
    while (!wait_finish(q, deadline_ns)) {
        int error = stall_explain(q, q->polled_ns + timeout_ns);
        if (error < 0) {
            q->polled_ns = 0;
            return error;
        }
    }
    if (round_end_is_awaited(q))
        return round_end_is_due(q);
    if (!request_is_over(q))
        return WAIT_GOES_ON;
    struct err ended = q->err;
    /* To the caller -EDQUOT means that the request of a table is still open (row_stall_lacks()).
     * This request is over, so its error gets another code. */
    if (q->rows && ended.code == -EDQUOT)
        ended.code = -ENOSPC;
    int error = ended.code ? client_error_from(&ended) : 0;
    request_release(q);
    return error;
}

/* Locks the job of a request until job_end_use(). NULL: the worker has left the job. */
static struct gp_job *wait_enter(const struct gp_request *q)
{
    pthread_mutex_lock(&q->client->lock);
    struct gp_job *job = q->job;
    if (job)
        job->users++; /* gp_job_leave() waits for this call from here on (L14) */
    pthread_mutex_unlock(&q->client->lock);
    if (job)
        pthread_mutex_lock(&job->lock);
    return job;
}

uint64_t wait_timeout_ns(const gp_client *client, int timeout_ms)
{
    return timeout_ms > 0 ? (uint64_t)timeout_ms * NS_PER_MS : client->timeout_ns;
}

static int wait_check(const struct gp_request *q)
{
    if (!q)
        return client_error(-EINVAL, "the request is NULL; pass the request of a push");
    if (generation_is_foreign(q->client->generation))
        return client_error(
            -ECHILD, "the request belongs to the parent process; connect and push in this process");
    return 0;
}

static int wait_end_abandoned(struct gp_request *q)
{
    int error = client_error_from(&q->err);
    gp_client *client = q->client;
    pthread_mutex_lock(&client->lock);
    list_remove(&q->node);
    pthread_mutex_unlock(&client->lock);
    free(q);
    return error;
}

int gp_wait(gp_request *request, int timeout_ms)
{
    int error = wait_check(request);
    if (error < 0)
        return error;
    uint64_t timeout_ns = wait_timeout_ns(request->client, timeout_ms);
    uint64_t deadline_ns = clock_now_ns() + timeout_ns;
    struct gp_job *job = wait_enter(request);
    if (!job)
        return wait_end_abandoned(request);
    error = round_end_is_due(request)
                ?: row_stall_is_due(request)
                ?: wait_locked(request, deadline_ns, timeout_ns);
    job_end_use(job);
    return error;
}

/* Polls a request. The time of a poll without a result is added to the time that the error of
 * gp_wait() names. */
static void wait_poll(struct gp_request *q, uint64_t timeout_ns)
{
    if (!wait_finish(q, clock_now_ns() + timeout_ns))
        q->polled_ns += timeout_ns;
}

int gp_poll(gp_request *request, int timeout_ms)
{
    int error = wait_check(request);
    if (error < 0)
        return error;
    struct gp_job *job = wait_enter(request);
    if (!job)
        return 1;
    bool is_awaited = round_end_is_awaited(request);
    if (timeout_ms > 0 && !is_awaited)
        wait_poll(request, (uint64_t)timeout_ms * NS_PER_MS);
    else if (is_awaited || !request_is_over(request))
        engine_poll(&job->engine);
    error = !round_end_is_awaited(request) && request_is_over(request);
    job_end_use(job);
    return error;
}
