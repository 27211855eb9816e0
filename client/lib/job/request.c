/* Owns the pool of a job's requests, and the lists of tensors in each request. */
#include "client/lib/job/request.h"

#include "client/lib/job/row_call.h"
#include "client/lib/job/tensor.h"

#include <stdlib.h>

struct gp_request *request_take(struct gp_job *job)
{
    struct list *pooled = list_first(&job->pool);
    struct gp_request *q =
        pooled ? list_entry(pooled, struct gp_request, node) : calloc(1, sizeof *q);
    if (!q)
        return NULL;
    if (pooled)
        list_remove(pooled);
    q->client = job->client;
    q->job = job;
    q->err.code = 0;
    q->rows = NULL;
    q->queries = 0;
    q->gradient = 0;
    q->polled_ns = 0;
    q->stall = (struct stall){0};
    q->missing_tensor = NULL;
    list_init(&q->waiting);
    list_init(&q->landed);
    list_init(&q->copying);
    list_init(&q->done);
    list_append(&job->requests, &q->node);
    return q;
}

/* Returns whether no message of a lane can change the end of the request. */
static bool request_has_ended(const struct gp_request *q)
{
    return q->err.code || (list_is_empty(&q->waiting) && !(q->rows && q->rows->open > 0));
}

/* Returns whether the open round belongs to a round of a job with backup workers for which this
 * rank has not called gp_round_end(). Lanes use no memory of the round before this call. After the
 * failure of a tensor the call fails, so lanes never use the memory (W22). */
static bool tensor_lacks_round_end(const struct gp_tensor *t)
{
    const struct backup_rounds *b = &t->job->backup;
    return tensor_follows(t, t->open.operation) && b->phase == BACKUP_OPEN &&
           t->open.root == (uint32_t)(b->held + 1);
}

/* Returns whether a lane may read or write memory of the caller in the tensor's open round. The
 * memory of a failed tensor has no further effect. */
static bool tensor_lends(const struct gp_tensor *t, const struct gp_request *q)
{
    return t->open_request == q && t->without_commit > 0 && t->open.ends_committed &&
           !t->failure.code && !tensor_lacks_round_end(t);
}

bool request_still_lends(const struct gp_request *q)
{
    if (!q->err.code || q->job->failure.code)
        return false;
    list_for_each_entry (const struct gp_tensor, t, &q->waiting, in_request)
        if (tensor_lends(t, q))
            return true;
    return false;
}

bool request_is_over(const struct gp_request *q)
{
    return list_is_empty(&q->copying) && request_has_ended(q) && !request_still_lends(q);
}

bool request_goes_on(const struct gp_request *q)
{
    const struct backup_rounds *b = q->job ? &q->job->backup : NULL;
    return b && b->request == q && b->phase == BACKUP_WANTED;
}

bool request_has_news(void *request)
{
    const struct gp_request *q = request;
    bool has_results = !q->err.code && !list_is_empty(&q->landed);
    return request_is_over(q) || has_results || request_goes_on(q);
}

void request_fail(struct gp_request *q, int code, const char *text)
{
    if (request_has_ended(q))
        return;
    err_set(&q->err, code, "%s", text);
    engine_kick(&q->job->engine);
}

static void request_detach(struct gp_request *q, struct list *tensors)
{
    list_for_each_safe (node, tensors) {
        struct gp_tensor *t = list_entry(node, struct gp_tensor, in_request);
        list_remove(node);
        t->request = NULL;
        t->is_starting = false;
        if (t->open_request == q)
            t->open_request = NULL;
        q->job->queued -= t->is_queued;
        t->is_queued = false;
    }
}

static void request_detach_all(struct gp_request *q)
{
    request_detach(q, &q->waiting);
    request_detach(q, &q->landed);
    request_detach(q, &q->copying);
    request_detach(q, &q->done);
    list_remove(&q->node);
    if (q->rows)
        row_call_abandon(q->rows);
    q->rows = NULL;
}

void request_release(struct gp_request *q)
{
    request_detach_all(q);
    list_append(&q->job->pool, &q->node);
}

void request_abandon(struct gp_request *q)
{
    request_detach_all(q);
    q->job = NULL;
    list_append(&q->client->abandoned, &q->node);
}
