/* Copies the rows of a table between the lanes and a file, for one rank, through the coordinator.
 * First waits until the earlier pushes of this rank are applied: lanes need none of its memory
 * while the rank waits for the coordinator. README: L90. */
#include "client/lib/job/job_tables.h"
#include "client/lib/job/row_call.h"
#include "client/lib/session/process.h"
#include "client/lib/state/state.h"
#include "svc/base/clock.h"
#include "svc/state/table_fetch.h"

#include <errno.h>
#include <inttypes.h>

struct table_copy {
    gp_table *table;
    bool imports;
    struct table_fetch fetch;
    struct err err;
};

static const char *copy_call(const struct table_copy *c)
{
    return c->imports ? "gp_table_import" : "gp_table_export";
}

static bool copy_is_settled(void *context)
{
    const struct gp_job *job = context;
    return job->failure.code || row_calls_are_settled(job);
}

/* Waits until the pushes of ended clocks are applied. */
static int copy_settle(struct table_copy *c)
{
    gp_table *t = c->table;
    struct gp_job *job = t->job;
    uint64_t timeout_ns = job->client->timeout_ns;
    pthread_mutex_lock(&job->lock);
    bool is_settled = engine_run(&job->engine, clock_now_ns() + timeout_ns, copy_is_settled, job);
    const struct err failure = job->failure.code ? job->failure : t->failure;
    const struct err lack = job->tables->errors->lack;
    pthread_mutex_unlock(&job->lock);
    if (failure.code)
        return err_set(&c->err, failure.code, "%s", failure.text);
    if (!is_settled && lack.code)
        return err_set(&c->err, lack.code, "pushes of this rank wait for memory: %s", lack.text);
    return is_settled ? 0
                      : err_set(&c->err, -ETIMEDOUT,
                                "pushes of this rank were not applied within %" PRIu64
                                " ms; call %s() when all ranks have ended the same clocks",
                                timeout_ns / NS_PER_MS, copy_call(c));
}

static int copy_exchange(struct table_copy *c)
{
    struct gp_job *job = c->table->job;
    int error = copy_settle(c);
    if (error == 0)
        error = client_connect_operator(job->client, &job->lock, &job->read_fd, &c->fetch.channel,
                                        &c->err);
    /* gp_job_leave() may have run before the socket existed */
    if (error == 0 && !state_is_left(job))
        error = c->imports ? table_fetch_import(&c->fetch, &c->err)
                           : table_fetch_export(&c->fetch, &c->err);
    return state_is_left(job) ? err_set(&c->err, -ECANCELED, "the job was left") : error;
}

static int copy_rows(gp_table *table, const char *path, bool imports)
{
    int error = job_table_check(table);
    if (error < 0)
        return error;
    struct gp_job *job = table->job;
    struct table_copy c = {.table = table,
                           .imports = imports,
                           .fetch = {.job = job->name,
                                     .tenant = client_tenant(job->client),
                                     .table = table->name,
                                     .path = path}};
    if (!path)
        return client_error(-EINVAL,
                            "table '%s': the path of %s() is NULL; pass the path of a file",
                            table->name, copy_call(&c));
    if (!state_take_turn(job))
        return client_error(-EBUSY,
                            "table '%s': job '%s' is being left, or another thread reads or writes "
                            "states; call %s() from one thread at a time",
                            table->name, job->name, copy_call(&c));
    error = copy_exchange(&c);
    if (error < 0)
        client_error(error, "table '%s': %s() has failed: %s", table->name, copy_call(&c),
                     c.err.text[0] ? c.err.text : err_text(error));
    state_end_turn(job, c.fetch.channel);
    table_fetch_free(&c.fetch);
    return error;
}

int gp_table_export(gp_table *table, const char *path) { return copy_rows(table, path, false); }

int gp_table_import(gp_table *table, const char *path) { return copy_rows(table, path, true); }
