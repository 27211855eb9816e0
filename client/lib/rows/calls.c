/* Pulls, pushes, settings, and ends of clocks. Gradients are folded, and directories written,
 * without the job's lock; then the call gets its numbers and is sent. */
#include "client/lib/job/request.h"
#include "client/lib/job/row_call.h"
#include "client/lib/link/link.h"
#include "client/lib/rows/changes.h"
#include "client/lib/rows/internal.h"
#include "client/lib/session/process.h"
#include "client/lib/stage/stage.h"
#include "svc/reduce/rows/rows.h"

#include <errno.h>
#include <inttypes.h>

/* The arguments of gp_pull() or gp_push(), and the call that they begin. */
struct row_begin {
    struct gp_batch *batch;
    struct row_call *call;
    const void *gradients; /* input of a push; NULL: a pull */
    void *rows;            /* memory for the rows of a pull */
    bool wants_request;
    struct gp_request *request;
};

/* ---- memory ---- */

static size_t row_begin_bytes(const struct row_begin *b)
{
    const struct gp_table *t = b->batch->table;
    return table_batch_bytes(&b->batch->keys, t->terms->shards, t->terms->wire, t->terms->dim);
}

static int row_begin_no_memory(const struct row_begin *b, int error)
{
    return client_error(error,
                        "table '%s': this process has no memory for another request; wait for open "
                        "requests, then call again",
                        b->batch->table->name);
}

/* Reserves a call and its memory. Allocates a call only if the batch has no idle call, and memory
 * only if the pool has no memory of this length. The caller holds the job's lock, which is released
 * during gp_alloc(), because gp_alloc() locks the job. */
static int row_begin_reserve(struct row_begin *b)
{
    struct gp_job *job = b->batch->table->job;
    size_t length = row_pool_length(row_begin_bytes(b));
    void *base = NULL;
    b->call = row_call_take(b->batch);
    int error = b->call ? 0 : row_call_create(b->batch, &b->call);
    if (error < 0)
        return row_begin_no_memory(b, error);
    b->call->memory = row_pool_take(job->tables->pool, length);
    if (b->call->memory)
        return 0;
    pthread_mutex_unlock(&job->lock);
    error = gp_alloc(job, length, &base);
    pthread_mutex_lock(&job->lock);
    if (error < 0)
        return error;
    error = row_pool_add(job->tables->pool, base, length, &b->call->memory);
    if (error == 0)
        return 0;
    (void)slabs_free(&job->slabs, base);
    return row_begin_no_memory(b, error);
}

/* ---- begin ---- */

/* Writes directory and keys, and folds the gradients. Called without the lock: only this call uses
 * the memory. */
static int row_begin_lay(const struct row_begin *b)
{
    const struct gp_table *t = b->batch->table;
    struct row_call *call = b->call;
    const struct request_memory memory = {.base = call->memory->base,
                                          .offset = call->memory->place.offset,
                                          .region = call->memory->place.region,
                                          .bytes = call->memory->bytes};
    int error = table_batch_lay(&b->batch->keys, &t->route, t->terms->wire, t->terms->dim, &memory,
                                call->spans, call->parts, call->requests);
    if (error < 0)
        return client_error(error,
                            "table '%s': a request is larger than its memory; make smaller "
                            "batches",
                            t->name);
    if (b->gradients)
        table_batch_fold(&b->batch->keys, call->requests, b->gradients);
    return 0;
}

static int row_begin_refused(const struct row_begin *b, int error)
{
    const struct gp_table *t = b->batch->table;
    if (error == -EBUSY)
        return client_error(error,
                            "table '%s': a rank may have %u open requests to a lane, and this rank "
                            "has as many; wait for one, or pull rows in each clock",
                            t->name, record_row_requests_open(t->job->workers));
    return client_error(
        error, "table '%s': this rank has used all numbers of requests; start the job again",
        t->name);
}

static int row_begin_send(struct row_begin *b)
{
    struct gp_job *job = b->batch->table->job;
    struct row_call *call = b->call;
    engine_poll(&job->engine); /* the completion words of earlier calls make room */
    int error = rows_check(b->batch->table);
    if (error < 0)
        return error;
    b->request = b->wants_request ? request_take(job) : NULL;
    if (b->wants_request && !b->request)
        return row_begin_no_memory(b, -ENOMEM);
    error = row_call_begin(call, b->gradients ? RECORD_PUSH : RECORD_PULL);
    if (error < 0) {
        if (b->request)
            request_release(b->request);
        return row_begin_refused(b, error);
    }
    call->request = b->request;
    call->is_copied = !b->request;
    call->rows = b->rows;
    if (b->request)
        b->request->rows = call;
    link_announce_rows(job);
    return 0;
}

/* Lays out the request without the lock. The routes do not change meanwhile. */
static int row_begin_lay_alone(const struct row_begin *b)
{
    struct gp_job *job = b->batch->table->job;
    struct job_tables *tables = job->tables;
    while (tables->use->is_changing)
        pthread_cond_wait(&tables->use->laid, &job->lock);
    tables->use->laying++;
    pthread_mutex_unlock(&job->lock);
    int error = row_begin_lay(b);
    pthread_mutex_lock(&job->lock);
    if (--tables->use->laying == 0 && tables->use->is_changing)
        pthread_cond_broadcast(&tables->use->laid);
    return error;
}

static int row_begin_locked(struct row_begin *b)
{
    int error = rows_check(b->batch->table);
    if (error == 0)
        error = row_begin_reserve(b);
    if (error == 0)
        error = row_begin_lay_alone(b);
    if (error == 0)
        error = row_begin_send(b);
    if (error < 0 && b->call)
        row_call_end(b->call);
    return error;
}

/* A batch without keys needs no lane: its request is over at once. */
static int row_begin_empty(struct row_begin *b)
{
    int error = rows_check(b->batch->table);
    if (error < 0 || !b->wants_request)
        return error;
    b->request = request_take(b->batch->table->job);
    return b->request ? 0 : row_begin_no_memory(b, -ENOMEM);
}

/* In a stage lanes use the settings of the lowest member, and each rank may be the lowest member,
 * so each rank must have set the settings. */
static int row_begin_check_stage(const struct row_begin *b)
{
    const struct gp_table *t = b->batch->table;
    const struct job_stage *stage = job_stage_of(t->job);
    int error = job_stage_check(t->job, b->gradients ? "gp_push" : "gp_pull");
    if (error < 0 || !stage || !*stage->name || !b->gradients || t->has_settings)
        return error;
    return client_error(-EINVAL,
                        "table '%s': rank %u pushes in stage '%s' without settings; call "
                        "gp_table_set() on every rank",
                        t->name, t->job->rank, stage->name);
}

static int row_begin(struct row_begin *b, struct gp_request **ret_request)
{
    struct gp_job *job = b->batch->table->job;
    pthread_mutex_lock(&job->lock);
    job->users++;
    int error = row_begin_check_stage(b);
    if (error == 0)
        error = b->batch->keys.positions > 0 ? row_begin_locked(b) : row_begin_empty(b);
    job_end_use(job);
    if (error == 0 && ret_request)
        *ret_request = b->request;
    return error;
}

static int row_begin_check(const struct gp_batch *batch)
{
    return batch ? job_table_check(batch->table)
                 : client_error(-EINVAL, "the batch is NULL; pass a batch of gp_batch_create()");
}

int gp_pull(gp_batch *batch, void *rows, gp_request **ret_request)
{
    int error = row_begin_check(batch);
    if (error < 0)
        return error;
    if (!ret_request || (!rows && batch->keys.positions > 0))
        return client_error(-EINVAL,
                            "table '%s': the argument %s of gp_pull() is NULL; pass a place for %s",
                            batch->table->name, ret_request ? "rows" : "ret_request",
                            ret_request ? "the rows" : "the request");
    struct row_begin b = {.batch = batch, .rows = rows, .wants_request = true};
    return row_begin(&b, ret_request);
}

int gp_push(gp_batch *batch, const void *gradients, gp_request **ret_request)
{
    int error = row_begin_check(batch);
    if (error < 0)
        return error;
    if (!gradients && batch->keys.positions > 0)
        return client_error(
            -EINVAL, "table '%s': the gradients of gp_push() are NULL; pass a row for each key",
            batch->table->name);
    struct row_begin b = {
        .batch = batch, .gradients = gradients, .wants_request = ret_request != NULL};
    return row_begin(&b, ret_request);
}

/* ---- settings ---- */

static struct row_settings row_settings_from(const gp_row_settings *s)
{
    return (struct row_settings){.rate = s->rate,
                                 .weight_decay = s->weight_decay,
                                 .beta1 = s->beta1,
                                 .beta2 = s->beta2,
                                 .epsilon = s->epsilon,
                                 .beta = s->beta,
                                 .l1 = s->l1,
                                 .l2 = s->l2};
}

int gp_table_set(gp_table *table, const gp_row_settings *settings)
{
    int error = job_table_check(table);
    if (error < 0)
        return error;
    if (!settings)
        return client_error(-EINVAL, "table '%s': the settings are NULL; pass a gp_row_settings",
                            table->name);
    struct row_settings checked = row_settings_from(settings);
    const char *wrong = row_wrong(table->terms->rule, &checked);
    if (wrong)
        return client_error(-EINVAL,
                            "table '%s': rule %s does not allow this value of %s; see "
                            "gp_row_settings",
                            table->name, row_rule_name(table->terms->rule), wrong);
    pthread_mutex_lock(&table->job->lock);
    error = rows_check(table);
    if (error == 0) {
        *table->settings = *settings;
        table->has_settings = true;
    }
    /* an idle rank, or a member that has ended its part, sends the settings when a stage begins */
    if (error == 0 && job_stage_is_active(table->job))
        error = changes_add(table, settings);
    pthread_mutex_unlock(&table->job->lock);
    return error;
}

/* ---- clocks ---- */

static int clock_end(struct gp_job *job)
{
    struct job_tables *tables = job->tables;
    if (job->failure.code)
        return client_error_from(&job->failure);
    if (!tables || list_is_empty(&tables->tables))
        return client_error(-EINVAL, "job '%s' has no table; call gp_table_declare() first",
                            job->name);
    int error = job_stage_check(job, "gp_clock");
    if (error < 0)
        return error;
    error = worker_clock_end(&tables->clock);
    if (error < 0)
        return client_error(
            error, "job '%s': this rank has used all numbers of clocks; start the job again",
            job->name);
    link_announce_rows(job);
    engine_poll(&job->engine);
    if (!tables->errors->copied.code)
        return 0;
    error = client_error_from(&tables->errors->copied);
    tables->errors->copied.code = 0;
    return error;
}

int gp_clock(gp_job *job)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    pthread_mutex_lock(&job->lock);
    error = clock_end(job);
    pthread_mutex_unlock(&job->lock);
    return error;
}
