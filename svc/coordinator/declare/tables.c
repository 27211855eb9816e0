/* Declares of tables. The first rank that names a table creates the table and its shards. All other
 * ranks must declare the same terms. A declare is answered after every lane has confirmed its
 * shards (K3). */
#include "svc/coordinator/declare/tables.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"
#include "svc/channel/table_spec.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/placement/apply_plan.h"
#include "svc/coordinator/placement/waiting.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/wait.h"
#include "svc/coordinator/store/numbers.h"
#include "svc/coordinator/table/allow.h"
#include "svc/coordinator/table/place.h"
#include "svc/wire/durability.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLES_DEADLINE_NS (30 * NS_PER_S) /* time within which all lanes have to confirm */
#define RANKS_NAMED 3

/* --- answers --- */

struct declared_tables {
    uint32_t job;
    size_t count;
    uint32_t tables[]; /* numbers of the tables, in the order of the request */
};

static void tables_send_routes(struct wait *wait, struct job *job,
                               const struct declared_tables *declared)
{
    size_t count = declared->count, made = 0;
    _cleanup_free_ WIRE(TableRoute) **routes = calloc(count + 1, sizeof *routes);
    for (; routes && made < count; made++) {
        routes[made] = job_table_route(job_table_find(job, declared->tables[made]));
        if (!routes[made])
            break;
    }
    if (routes && made == count)
        peer_reply(wait->peer, wait->request, DECLARE_REPLY, declare_reply, .tables = routes,
                   .n_tables = count);
    else
        peer_fail_memory(wait->peer, wait->request);
    for (size_t i = 0; i < made; i++)
        free(routes[i]);
}

/* Answers the declare if all tables are ready or one has failed. Returns whether an answer was
 * sent. */
static bool tables_try_answer(struct wait *wait, struct job *job,
                              const struct declared_tables *declared)
{
    bool ready = true;
    if (job->failure) {
        peer_fail(wait->peer, wait->request, -ECONNRESET, "job %s has failed: %s", job->name,
                  job->failure);
        return true;
    }
    for (size_t i = 0; i < declared->count; i++) {
        const struct job_table *table = job_table_find(job, declared->tables[i]);
        if (table->failure) {
            peer_fail(wait->peer, wait->request, table->failure_code, "%s", table->failure);
            return true;
        }
        ready = ready && shards_are_ready(table);
    }
    if (ready)
        tables_send_routes(wait, job, declared);
    return ready;
}

static void tables_expired(struct wait *wait)
{
    const struct declared_tables *declared = wait->data;
    const struct job *job = jobs_find_id(wait->peer->service, declared->job);
    peer_fail(wait->peer, wait->request, -ETIMEDOUT,
              "job %s: the lanes did not confirm all shards in time; see gradpool status, then "
              "declare the tables again",
              job ? job->name : "?");
    wait_destroy(wait);
}

void tables_check_waits(struct job *job)
{
    list_for_each_safe_entry (struct wait, wait, &job->service->door->waits, link) {
        const struct declared_tables *declared = wait->data;
        if (wait->expired == tables_expired && declared->job == job->id &&
            tables_try_answer(wait, job, declared))
            wait_destroy(wait);
    }
}

/* --- checks --- */

/* A declare whose message is being handled. */
struct tables_asked {
    struct peer *peer;
    struct job *job;
    uint64_t request;
    struct job_table **wanted; /* one table for each spec */
    size_t wanted_count;
    /* number of the job's next table before this declare; tables from this number on are new */
    uint32_t next_table;
    /* The ranks have declared different terms. Some ranks would wait forever for other ranks'
     * clocks, so the job fails. */
    bool fails_job;
};

/* Returns why lanes cannot serve a table with these terms, or NULL. */
static const char *table_lack(const struct table_terms *terms)
{
    if (terms->durability == DURABILITY_WORKER)
        return "workers store no copies of rows; set durability to GP_DURABILITY_REPLICA or "
               "GP_DURABILITY_NONE";
    if (terms->flags & TABLE_TERMS_KEEP)
        return "tables end with their job in this version; clear GP_KEEP";
    return NULL;
}

static bool job_has_other_durability(const struct job *job, const struct table_terms *terms)
{
    bool is_copied = terms->durability == DURABILITY_REPLICA;
    job_each_table(table,
                   job) if (!table->failure && (table->terms->durability == DURABILITY_REPLICA) !=
                                                   is_copied) return true;
    return false;
}

/* Returns why the job cannot have a table with these terms, or NULL. An elastic job may have tables
 * without BSP only: no lane waits for the updates of a lost worker, and its loss only releases the
 * ranks that wait for the slowest clock. */
static const char *job_lack(const struct job *job, const struct table_terms *terms)
{
    bool takes_late = job->workers > job->ranks->founding;
    bool is_bsp = terms->consistency <= TABLE_TERMS_BSP;
    if (job->terms->is_elastic && terms->durability == DURABILITY_REPLICA)
        return "a job with on_worker_loss GP_CONTINUE cannot have copies of rows in this version; "
               "set durability to GP_DURABILITY_NONE, or on_worker_loss to GP_FAIL";
    if (job_has_other_durability(job, terms))
        return "the job has tables with another durability, and a copy contains all tables of a "
               "lane; declare all tables with durability GP_DURABILITY_REPLICA, or none";
    if (job->terms->backup.rule != BACKUP_TERMS_ALL)
        return "a job with backup workers has no tables in this version; join without backup "
               "workers";
    if (job->terms->is_elastic && takes_late)
        return "a job that takes in late workers has no tables in this version; join without "
               "workers_max";
    if (job->terms->is_elastic && is_bsp)
        return "a job that continues without lost workers has only tables with SSP and ASP in this "
               "version; set consistency to GP_SSP or GP_ASP, or on_worker_loss to GP_FAIL";
    return NULL;
}

static int table_check(const struct job *job, const WIRE(TableSpec) * spec, struct err *err)
{
    struct table_terms terms = table_spec_terms(spec);
    int error =
        table_terms_check_name(spec->name, err) ?: table_terms_check(&terms, spec->name, err);
    const char *lack = error < 0 ? NULL : job_lack(job, &terms) ?: table_lack(&terms);
    return lack ? err_set(err, -EOPNOTSUPP, "table '%s' of job %.127s: %s", spec->name, job->name,
                          lack)
                : error;
}

/* --- ranks that disagree --- */

/* Writes "rank 0", "ranks 0, 2" or "ranks 0, 1, 2 and 5 more". Returns `buffer`. */
static const char *table_ranks_text(const struct job_table *table, char *buffer,
                                    size_t buffer_bytes)
{
    uint32_t count = ranks_count(table->ranks), shown = 0;
    snprintf(buffer, buffer_bytes, count == 1 ? "rank" : "ranks");
    for (uint32_t rank = 0; rank < table->job->workers && shown < RANKS_NAMED; rank++)
        if (ranks_have(table->ranks, rank))
            text_append(buffer, buffer_bytes, "%s %u", shown++ ? "," : "", rank);
    if (count > shown)
        text_append(buffer, buffer_bytes, " and %u more", count - shown);
    return buffer;
}

/* Refuses terms that differ from those of an earlier declare. If this rank has declared the table
 * before, only this declare fails. Otherwise the ranks disagree, and the whole job fails: a rank
 * has one clock for all its tables, so other ranks could wait in any table. */
static int table_refuse_terms(struct tables_asked *d, struct job_table *table,
                              const struct table_terms *terms, struct err *err)
{
    uint32_t rank = d->peer->session->rank;
    char expected[TABLE_TERMS_TEXT_BYTES], got[TABLE_TERMS_TEXT_BYTES], ranks[64];
    table_terms_write(table->terms, expected, sizeof expected);
    table_terms_write(terms, got, sizeof got);
    if (ranks_have(table->ranks, rank) || ranks_are_none(table->ranks))
        return err_set(err, -EEXIST,
                       "table '%.64s' of job %.64s: rank %u declared %s before, and now %s; "
                       "declare the same terms, or choose another name",
                       table->name, d->job->name, rank, expected, got);
    err_set(err, -EINVAL,
            "table '%.64s' of job %.64s: %s declared %s; rank %u declared %s; declare the same "
            "terms on all ranks",
            table->name, d->job->name, table_ranks_text(table, ranks, sizeof ranks), expected, rank,
            got);
    d->fails_job = true;
    return -EINVAL;
}

static int table_create_new(struct tables_asked *d, const char *name,
                            const struct table_terms *terms, struct job_table **ret_table,
                            struct err *err)
{
    int error = quota_check_table(d->job, table_terms_filled(*terms).shards, err);
    if (error < 0)
        return error;
    error = job_table_add(d->job, name, terms, ret_table);
    return error < 0
               ? err_set(err, error, "gradpool serve: %s; declare the table again", err_text(error))
               : allow_check_table(*ret_table, err);
}

static int table_resolve(struct tables_asked *d, const WIRE(TableSpec) * spec, struct err *err)
{
    struct table_terms terms = table_spec_terms(spec);
    int error = table_check(d->job, spec, err);
    if (error < 0)
        return error;
    struct job_table *table = job_table_named(d->job, spec->name);
    if (!table)
        error = table_create_new(d, spec->name, &terms, &table, err);
    else if (table->failure)
        error = err_set(err, table->failure_code, "%s", table->failure);
    else if (!table_terms_are_same(table->terms, &terms))
        error = table_refuse_terms(d, table, &terms, err);
    if (error == 0)
        d->wanted[d->wanted_count++] = table;
    return error;
}

/* --- placement and storage --- */

static bool table_is_new(const struct tables_asked *d, const struct job_table *table)
{
    return table->id >= d->next_table;
}

/* Chooses a lane, a task and an epoch for each shard of a new table. The lanes' sums of shards and
 * bytes change later, in table_adopt(). */
static int table_plan(struct job_table *table, struct lane **lanes, struct err *err)
{
    int error = placing_plan_shards(table, lanes, err);
    for (uint32_t i = 0; error == 0 && i < table->terms->shards; i++) {
        table->shards[i].lane = lanes[i];
        table->shards[i].task = table->job->service->numbers->next_task++;
        table->shards[i].epoch = table->job->epoch;
    }
    return error;
}

static int tables_plan(const struct tables_asked *d, struct err *err)
{
    struct lane *lanes[TABLE_TERMS_SHARDS_MAX];
    int error = 0;
    job_each_table(table, d->job) if (error == 0 && table_is_new(d, table)) error =
        table_plan(table, lanes, err);
    return error;
}

/* Adds the rank to the wanted tables that did not have the rank before the declare. If `on` is
 * false, removes the rank from these tables. `had[i]`: wanted table i had the rank before the
 * declare. */
static void tables_set_rank(const struct tables_asked *d, const bool *had, bool on)
{
    uint32_t rank = d->peer->session->rank;
    for (size_t i = 0; i < d->wanted_count; i++) {
        uint64_t *word = &d->wanted[i]->ranks[rank / 64], bit = UINT64_C(1) << rank % 64;
        if (!had[i])
            *word = on ? *word | bit : *word & ~bit;
    }
}

/* Stores the declare in one transaction (K1). */
static int tables_keep(const struct tables_asked *d, struct err *err)
{
    struct service *s = d->job->service;
    struct store_row row;
    store_begin(s->store);
    service_put_numbers(s);
    jobs_row(d->job, &row);
    store_put(s->store, &row);
    for (size_t i = 0; i < d->wanted_count; i++)
        job_table_put(d->wanted[i], table_is_new(d, d->wanted[i]));
    return store_commit(s->store, err);
}

static void table_adopt(struct job_table *table)
{
    table_each_shard(shard, table)
    {
        struct lane *lane = shard->lane;
        shard->lane = NULL;
        shard_attach(table, shard, lane);
    }
}

static int tables_settle(struct tables_asked *d, struct err *err)
{
    _cleanup_free_ bool *had = calloc(d->wanted_count + 1, sizeof *had);
    int error =
        had ? tables_plan(d, err)
            : err_set(
                  err, -ENOMEM,
                  "gradpool serve has no memory for tables of job %.64s; raise its memory limit",
                  d->job->name);
    if (error < 0)
        return error;
    for (size_t i = 0; i < d->wanted_count; i++)
        had[i] = ranks_have(d->wanted[i]->ranks, d->peer->session->rank);
    tables_set_rank(d, had, true);
    error = tables_keep(d, err);
    if (error < 0) {
        tables_set_rank(d, had, false);
        return error;
    }
    job_each_table(table, d->job) if (table_is_new(d, table)) table_adopt(table);
    d->job->figures->trained_ns = clock_now_ns();
    d->job->service->on->service->training_may_begin(d->job->service);
    return 0;
}

/* Removes the new tables. Their shards have a chosen lane, but are not attached to the lane yet. */
static void tables_undo(struct tables_asked *d)
{
    list_for_each_safe_entry (struct job_table, table, &d->job->index->tables.list, link) {
        if (!table_is_new(d, table))
            continue;
        table_each_shard(shard, table) shard->lane = NULL;
        job_table_remove(table);
    }
    d->job->next_tensor = d->next_table;
}

static void tables_answer_when_ready(const struct tables_asked *d)
{
    struct declared_tables *declared =
        calloc(1, sizeof *declared + d->wanted_count * sizeof declared->tables[0]);
    if (!declared)
        return peer_fail_memory(d->peer, d->request);
    declared->job = d->job->id;
    declared->count = d->wanted_count;
    for (size_t i = 0; i < d->wanted_count; i++)
        declared->tables[i] = d->wanted[i]->id;
    if (!wait_create(d->peer, d->request, TABLES_DEADLINE_NS, tables_expired, declared))
        return;
    shards_tell(d->job);
    tables_check_waits(d->job);
}

/* Ends the job's wait for lanes, unless `error` is -EINPROGRESS: the wait then continues. */
static int tables_end_wait(struct job *job, int error)
{
    if (error == 0)
        waiting_placed(job);
    if (error != -EINPROGRESS)
        waiting_end(job, error == 0);
    return error;
}

static int tables_try(struct tables_asked *d, const WIRE(DeclareRequest) * wanted, struct err *err)
{
    if (wanted->n_tensors > 0)
        return err_set(err, -EINVAL,
                       "job %s: a declare names tensors and tables; declare the tables in a "
                       "request of their own",
                       d->job->name);
    if (d->peer->session->entered > 0)
        return err_set(err, -EOPNOTSUPP,
                       "rank %u has joined job %.127s after its start, and late workers take no "
                       "part in tables in this version; start the job again",
                       d->peer->session->rank, d->job->name);
    int error = quota_check_count(d->job->tenant, wanted->n_tables, d->job->name, err);
    for (size_t i = 0; error == 0 && i < wanted->n_tables; i++)
        error = table_resolve(d, wanted->tables[i], err);
    return tables_end_wait(d->job, error < 0 ? error : tables_settle(d, err));
}

int tables_declare(struct peer *p, const envelope *request, struct err *err)
{
    const WIRE(DeclareRequest) *wanted = request->declare_request;
    _cleanup_free_ struct job_table **found = calloc(wanted->n_tables + 1, sizeof *found);
    struct job *job = p->session->job;
    if (!found) {
        peer_fail_memory(p, request->id);
        return -ENOMEM;
    }
    struct tables_asked d = {.peer = p,
                             .job = job,
                             .request = request->id,
                             .wanted = found,
                             .next_table = job->next_tensor};
    int error = tables_try(&d, wanted, err);
    if (error == 0) {
        tables_answer_when_ready(&d);
        return 0;
    }
    tables_undo(&d);
    if (d.fails_job)
        jobs_fail(job, p->session, error, "%s", err->text);
    if (error != -EINPROGRESS)
        peer_fail(p, request->id, error, "%s", err->text);
    return error;
}
