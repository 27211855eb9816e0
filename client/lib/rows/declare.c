/* Declares tables: checks the caller's spec, sends the request to the coordinator, and waits until
 * the lanes with shards are connected. */
#include "client/lib/declare/declare.h"
#include "client/lib/job/row_call.h"
#include "client/lib/link/link.h"
#include "client/lib/rows/internal.h"
#include "client/lib/session/process.h"
#include "client/lib/stage/stage.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

_Static_assert((int)GP_ROW_FTRL == TABLE_TERMS_FTRL && (int)GP_NORMAL == TABLE_TERMS_NORMAL &&
                   (int)GP_ASP == TABLE_TERMS_ASP && (int)GP_KEEP == TABLE_TERMS_KEEP &&
                   (int)GP_ACCEPT_NONFINITE == TABLE_TERMS_ACCEPT_NONFINITE &&
                   (int)GP_MEAN == TABLE_TERMS_MEAN,
               "the values of gradpool_table.h are those of the wire");

struct table_declaration {
    struct control_call call;
    struct gp_job *job;
    const char *name;
    const struct table_terms *terms; /* the terms with all defaults filled in */
    uint64_t deadline_ns;
    struct gp_table *table; /* NULL: not declared */
    Gradpool__Wire__TableSpec spec, *spec_pointer;
    Gradpool__Wire__DeclareRequest request;
    struct err err;
};

/* ---- checks ---- */

static struct table_terms declared_terms(const gp_table_spec *spec)
{
    return (struct table_terms){.dim = spec->dim,
                                .shards = spec->shards,
                                .dtype = (uint32_t)spec->dtype,
                                .wire = (uint32_t)spec->wire,
                                .keys = spec->keys,
                                .rows_hint = spec->rows_hint,
                                .rule = (uint32_t)spec->rule,
                                .combine = (uint32_t)spec->combine,
                                .initial_value = spec->initial_value,
                                .seed = spec->seed,
                                .initial = (uint32_t)spec->initial,
                                .consistency = (uint32_t)spec->consistency,
                                .staleness = spec->staleness,
                                .durability = (uint32_t)spec->durability,
                                .flags = spec->flags};
}

static int declared_check_spec(const gp_table_spec *spec)
{
    struct err err;
    struct table_terms terms = declared_terms(spec);
    if (!spec->name)
        return client_error(-EINVAL, "the table has no name; set gp_table_spec.name");
    int error =
        table_terms_check_name(spec->name, &err) ?: table_terms_check(&terms, spec->name, &err);
    return error < 0 ? client_error_from(&err) : 0;
}

static int declared_no_memory(struct table_declaration *d)
{
    return err_set(
        &d->err, -ENOMEM,
        "table '%.100s': this process has no memory for the table; raise its memory limit",
        d->name);
}

/* Refuses a declare after the first clock. A clock may end before the coordinator's answer arrives,
 * so the check is repeated after the answer. */
static int declared_check_clock(struct table_declaration *d)
{
    uint64_t ended = d->job->tables ? d->job->tables->clock.ended : 0;
    if (job_stage_of(d->job))
        return err_set(&d->err, -EBUSY,
                       "table '%.100s': the stages of job '%s' have begun; declare all tables "
                       "before the first gp_stage_next()",
                       d->name, d->job->name);
    if (ended == 0)
        return 0;
    return err_set(&d->err, -EBUSY,
                   "table '%.100s': this rank has ended clock %" PRIu64 " of its tables; declare "
                   "all tables before the first gp_clock()",
                   d->name, ended);
}

/* Finds the table if this rank has declared it before. */
static int declared_find(struct table_declaration *d)
{
    char before[TABLE_TERMS_TEXT_BYTES], now[TABLE_TERMS_TEXT_BYTES];
    struct gp_table *t = job_table_find(d->job, d->name);
    if (d->job->failure.code)
        return client_error_from(&d->job->failure);
    if (t && table_terms_are_same(t->terms, d->terms)) {
        d->table = t;
        return 0;
    }
    if (t) {
        table_terms_write(t->terms, before, sizeof before);
        table_terms_write(d->terms, now, sizeof now);
        return client_error(-EEXIST,
                            "table '%.100s' was declared before with %s, now with %s; choose "
                            "another name for this table",
                            d->name, before, now);
    }
    if (declared_check_clock(d) < 0)
        return client_error_from(&d->err);
    if (job_tables_create(d->job) < 0)
        declared_no_memory(d);
    return d->err.code ? client_error_from(&d->err) : 0;
}

/* ---- the request ---- */

/* Opens the links before the job has the table, because a lane without any piece or table of the
 * job may end its connection (L19). */
static int declared_open_links(struct gp_job *job, const struct table_route *route)
{
    for (uint32_t i = 0; i < route->lanes_count; i++)
        if (!link_get(job, route->lanes[i]))
            return -ENOMEM;
    return 0;
}

static int declared_route(struct table_declaration *d, const envelope *reply)
{
    struct table_route route = {0};
    bool is_reply = reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_DECLARE_REPLY;
    if (!is_reply || reply->declare_reply->n_tables != 1)
        return err_set(&d->err, -EPROTO,
                       "table '%s': the coordinator did not answer the declare with a route; "
                       "install one version of gradpool on all hosts",
                       d->name);
    int error = declared_check_clock(d);
    if (error < 0)
        return error;
    error = table_route_read(reply->declare_reply->tables[0], d->name, d->terms->shards, &route,
                             &d->err);
    if (error < 0)
        return error;
    error = declared_open_links(d->job, &route);
    if (error == 0)
        error = job_table_add(d->job, d->name, d->terms, &route, &d->table);
    table_route_fini(&route);
    return error < 0 ? declared_no_memory(d) : 0;
}

/* Creates the table from the coordinator's answer. Runs in the control thread, so that a later
 * TableFailure finds the table. If the job has failed, the job's failure replaces the error of the
 * call, because the failure is the cause. */
static void table_declared(struct control_call *call, const envelope *reply, const struct err *err)
{
    struct table_declaration *d = container_of(call, struct table_declaration, call);
    pthread_mutex_lock(&d->job->lock);
    if (err)
        d->err = d->job->failure.code ? d->job->failure : *err;
    else
        declared_route(d, reply);
    pthread_mutex_unlock(&d->job->lock);
}

static void declared_fill(struct table_declaration *d)
{
    const struct table_terms *t = d->terms;
    d->spec = MESSAGE_PART(
        TableSpec, table_spec, .name = (char *)d->name, .dim = t->dim, .shards = t->shards,
        .dtype = t->dtype, .wire = t->wire, .keys = t->keys, .rows_hint = t->rows_hint,
        .rule = t->rule, .combine = t->combine, .initial = t->initial,
        .initial_value = t->initial_value, .seed = t->seed, .consistency = t->consistency,
        .staleness = t->staleness, .durability = t->durability, .flags = t->flags);
    d->spec_pointer = &d->spec;
    d->request =
        MESSAGE_PART(DeclareRequest, declare_request, .tables = &d->spec_pointer, .n_tables = 1);
    d->call.request = ENVELOPE(0, DECLARE_REQUEST, declare_request, &d->request);
    d->call.done = table_declared;
}

static int declared_ask(struct table_declaration *d)
{
    declared_fill(d);
    control_post(d->job->control, &d->call);
    if (control_wait(d->job->control, &d->call, d->deadline_ns) < 0)
        return declare_unanswered(d->job, d->name, d->job->client->timeout_ns);
    return d->err.code ? client_error_from(&d->err) : 0;
}

/* ---- connections ---- */

/* Returns a link of the table that is not open; NULL: all links are open. */
static const struct link *declared_find_link(const struct gp_table *t)
{
    for_each_link (l, t->job)
        if (job_table_is_on(t, l->lane) && (l->state != LINK_OPEN || l->is_left))
            return l;
    return NULL;
}

static bool declared_is_settled(void *context)
{
    const struct gp_table *t = context;
    return t->failure.code || t->job->failure.code || !declared_find_link(t);
}

static int declared_check_link(const struct table_declaration *d, const struct link *l)
{
    char name[128];
    link_name(l, name, sizeof name);
    if (l->failure.code)
        return client_error_from(&l->failure);
    return client_error(-ETIMEDOUT,
                        "table '%s': this rank did not connect to %s within %" PRIu64
                        " ms; look at that host, or raise GRADPOOL_TIMEOUT_MS",
                        d->name, name, d->job->client->timeout_ns / NS_PER_MS);
}

static int declared_connect(struct table_declaration *d)
{
    struct gp_table *t = d->table;
    for (uint32_t i = 0; i < t->route.lanes_count; i++)
        if (!t->failure.code && !link_get(d->job, t->route.lanes[i]))
            declared_no_memory(d);
    if (d->err.code)
        return client_error_from(&d->err);
    link_announce_rows(d->job);
    engine_run(&d->job->engine, d->deadline_ns, declared_is_settled, t);
    int error = rows_check(t);
    if (error < 0)
        return error;
    const struct link *l = declared_find_link(t);
    return l ? declared_check_link(d, l) : 0;
}

/* ---- declare ---- */

static int declared_run(struct table_declaration *d)
{
    struct gp_job *job = d->job;
    pthread_mutex_lock(&job->lock);
    int error = declared_find(d);
    pthread_mutex_unlock(&job->lock);
    if (error == 0 && !d->table)
        error = declared_ask(d);
    if (error < 0)
        return error;
    pthread_mutex_lock(&job->lock);
    error = declared_connect(d);
    engine_flush(&job->engine);
    pthread_mutex_unlock(&job->lock);
    return error;
}

int gp_table_declare(gp_job *job, const gp_table_spec *spec, gp_table **ret_table)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    if (!spec || !ret_table)
        return client_error(-EINVAL, "gp_table_declare: spec or ret_table is NULL; pass both");
    error = declared_check_spec(spec);
    if (error < 0)
        return error;
    struct table_terms terms = table_terms_filled(declared_terms(spec));
    struct table_declaration d = {.job = job,
                                  .name = spec->name,
                                  .terms = &terms,
                                  .deadline_ns = clock_now_ns() + job->client->timeout_ns};
    pthread_mutex_lock(&job->declaring);
    error = declared_run(&d);
    pthread_mutex_unlock(&job->declaring);
    if (error == 0)
        *ret_table = d.table;
    return error;
}
