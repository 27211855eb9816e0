/* Rows of tables in snapshots. The lowest rank copies the rows of all tables through the
 * coordinator, while the other ranks wait in agreements. So no rank changes a row meanwhile, and
 * all rows are of the clock in which the ranks are. README: L150. */
#include "client/lib/job/job_tables.h"
#include "client/lib/job/row_call.h"
#include "client/lib/session/process.h"
#include "client/lib/state/internal.h"
#include "client/lib/state/state.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- the tables of this rank ---- */

/* Returns whether a push of the present clock is open. No row contains such a push yet. */
static bool table_is_inside_clock(const struct gp_table *t)
{
    const struct job_tables *tables = t->job->tables;
    list_for_each_entry (const struct row_call, call, &tables->calls, node)
        if (call->batch->table == t && call->is_push && call->open > 0 &&
            t->consistency == TABLE_TERMS_BSP && call->clock > tables->clock.ended)
            return true;
    return false;
}

static int table_check_for_snapshot(const struct gp_table *t, struct err *err)
{
    if (t->failure.code)
        return err_set(err, t->failure.code, "%s", t->failure.text);
    if (!table_is_inside_clock(t))
        return 0;
    return err_set(err, -EBUSY,
                   "table '%s': rank %u has pushes in clock %" PRIu64 ", which has not ended; call "
                   "gp_clock() before a snapshot or restore",
                   t->name, t->job->rank, worker_clock_now(&t->job->tables->clock));
}

void snapshot_tables_find(struct snapshot *s)
{
    gp_job *job = s->job;
    pthread_mutex_lock(&job->lock);
    for_each_table (t, job) {
        uint64_t words[] = {s->print, state_sum(t->name, strlen(t->name)), t->terms->dim,
                            t->terms->rule};
        s->print = state_sum(words, sizeof words) >> 1;
        s->tables.count++;
        s->tables.has_bsp |= t->consistency == TABLE_TERMS_BSP;
        if (s->err.code == 0)
            table_check_for_snapshot(t, &s->err);
    }
    pthread_mutex_unlock(&job->lock);
}

static bool tables_are_settled(void *context)
{
    const struct gp_job *job = context;
    return job->failure.code || row_calls_are_settled(job);
}

void snapshot_tables_settle(struct snapshot *s)
{
    gp_job *job = s->job;
    if (s->tables.count == 0)
        return;
    pthread_mutex_lock(&job->lock);
    uint64_t timeout_ns = job->client->timeout_ns;
    bool is_settled =
        engine_run(&job->engine, clock_now_ns() + timeout_ns, tables_are_settled, job);
    const struct err failure = job->failure, lack = job->tables->errors->lack;
    pthread_mutex_unlock(&job->lock);
    if (failure.code)
        err_set(&s->err, failure.code, "%s", failure.text);
    else if (!is_settled && lack.code)
        err_set(&s->err, lack.code, "job '%s': pushes of rank %u wait for memory: %s", job->name,
                job->rank, lack.text);
    else if (!is_settled)
        err_set(&s->err, -ETIMEDOUT,
                "job '%s': pushes of rank %u were not applied within %" PRIu64
                " ms; look at `gradpool explain %s`, or raise GRADPOOL_TIMEOUT_MS",
                job->name, job->rank, timeout_ns / NS_PER_MS, job->name);
}

/* ---- the rank with the file ---- */

int snapshot_tables_check(struct snapshot *s, const struct state_file *f, uint64_t until_ns)
{
    if (s->tables.count > 0)
        return tables_import_check(&s->tables.copy, f, until_ns, &s->err);
    if (f->tables_offset == f->file_bytes)
        return 0;
    return err_set(
        &s->err, -EINVAL,
        "the snapshot has tables, but job '%s' has declared none; declare the tables of the "
        "saved model",
        s->job->name);
}

static int tables_connect(struct snapshot *s)
{
    gp_job *job = s->job;
    struct tables_copy *c = &s->tables.copy;
    if (!state_take_turn(job))
        return err_set(&s->err, -EBUSY,
                       "job '%s' is being left, or another thread reads or writes states; call "
                       "gp_job_%s() alone",
                       job->name, s->restores ? "restore" : "snapshot");
    s->tables.state = TABLES_CONNECTED;
    c->job = job->name;
    c->tenant = client_tenant(job->client);
    c->is_between = true;
    c->clock = s->tables.has_bsp ? worker_clock_now(&job->tables->clock) : 0;
    int error =
        client_connect_operator(job->client, &job->lock, &job->read_fd, &c->channel, &s->err);
    if (error < 0)
        return error;
    return s->restores ? tables_import_begin(c, &s->err) : tables_export_begin(c, &s->err);
}

/* Copies a part of the rows: to the file `writer`, or, if `writer` is NULL, to the lanes. See
 * part_fn. */
static int tables_copy_part(struct snapshot *s, void *writer, uint64_t until_ns)
{
    struct tables_copy *c = &s->tables.copy;
    int result = s->tables.state == TABLES_CONNECTED ? 0 : tables_connect(s);
    if (result == 0)
        result = writer ? tables_export_some(c, writer, until_ns, &s->err)
                        : tables_import_some(c, until_ns, &s->err);
    if (result < 0 && state_is_left(s->job))
        err_set(&s->err, -ECANCELED, "the job was left");
    return result;
}

int snapshot_tables_copy(struct snapshot *s, struct state_writer *w, size_t *step)
{
    s->tables.state = TABLES_COPIED;
    return s->tables.count > 0 ? agree_in_parts(s, tables_copy_part, w, step) : 0;
}

void snapshot_tables_end(struct snapshot *s)
{
    if (s->tables.state == TABLES_CONNECTED)
        state_end_turn(s->job, s->tables.copy.channel);
    tables_copy_free(&s->tables.copy);
    s->tables.state = TABLES_UNTOUCHED;
}
