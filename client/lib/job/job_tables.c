/* Owns the tables of a job, and the numbers of the records that were sent to each lane. Rows are
 * stored on lanes only, so a table fails when one of its lanes is lost. */
#include "client/lib/job/job_tables.h"

#include "client/lib/job/request.h"
#include "client/lib/job/row_call.h"
#include "client/lib/session/process.h"
#include "svc/base/text.h"
#include "svc/wire/durability.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS_NAMED_MAX 8

int job_tables_create(struct gp_job *job)
{
    if (job->tables)
        return 0;
    struct job_tables *tables = calloc(1, sizeof *tables + sizeof *tables->pool +
                                              sizeof *tables->errors + sizeof *tables->use);
    if (!tables)
        return -ENOMEM;
    tables->pool = (struct row_pool *)(tables + 1);
    tables->errors = (struct row_errors *)(tables->pool + 1);
    tables->use = (struct route_use *)(tables->errors + 1);
    row_pool_init(tables->pool, &job->slabs);
    struct list *lists[] = {&tables->tables, &tables->lanes, &tables->changes,
                            &tables->spare_changes, &tables->calls};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        list_init(lists[i]);
    exchanges_init(&tables->exchanges, job->workers);
    pthread_cond_init(&tables->use->laid, NULL);
    tables->clock.session = job->join.session;
    job->tables = tables;
    return 0;
}

/* ---- lanes ---- */

struct table_lane *job_tables_lane(const struct gp_job *job, uint32_t lane, uint32_t group)
{
    if (!job->tables)
        return NULL;
    list_for_each_entry (struct table_lane, found, &job->tables->lanes, node)
        if (found->lane == lane && found->group == group)
            return found;
    return NULL;
}

void table_lane_set_unsent(struct gp_job *job, struct table_lane *lane, bool is_unsent)
{
    job->unsent += (uint32_t)is_unsent - (uint32_t)lane->is_unsent;
    lane->is_unsent = is_unsent;
}

bool job_table_is_on(const struct gp_table *t, uint32_t lane)
{
    for (uint32_t i = 0; i < t->route.lanes_count; i++)
        if (t->route.lanes[i] == lane)
            return true;
    return false;
}

bool job_table_has(const struct gp_table *t, uint32_t lane, uint32_t group)
{
    for (uint32_t i = 0; i < t->route.lanes_count; i++)
        if (t->route.lanes[i] == lane && (t->route.groups ? t->route.groups[i] : 0) == group)
            return true;
    return false;
}

bool job_tables_are_copied(const struct gp_job *job)
{
    for_each_table (t, job)
        if (t->terms->durability == DURABILITY_REPLICA)
            return true;
    return false;
}

bool job_tables_are_on(const struct gp_job *job, uint32_t lane)
{
    if (!job->tables)
        return false;
    list_for_each_entry (const struct table_lane, found, &job->tables->lanes, node)
        if (found->lane == lane && !found->is_lost)
            return true;
    return false;
}

static int job_tables_add_lane(struct gp_job *job, uint32_t lane, uint32_t group)
{
    if (job_tables_lane(job, lane, group))
        return 0;
    struct table_lane *added = calloc(1, sizeof *added);
    if (!added)
        return -ENOMEM;
    added->lane = lane;
    added->group = group;
    list_append(&job->tables->lanes, &added->node);
    return 0;
}

/* ---- tables ---- */

int job_table_check(const struct gp_table *t)
{
    return t ? job_check(t->job)
             : client_error(-EINVAL, "the table is NULL; pass the table of gp_table_declare()");
}

struct gp_table *job_table_find(const struct gp_job *job, const char *name)
{
    for_each_table (t, job)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

struct gp_table *job_table_find_number(const struct gp_job *job, uint32_t number)
{
    for_each_table (t, job)
        if (t->route.table == number)
            return t;
    return NULL;
}

static void job_table_fail_call(struct row_call *call, const struct err *err)
{
    struct err *copied = &call->batch->table->job->tables->errors->copied;
    if (call->request)
        request_fail(call->request, err->code, err->text);
    else if (call->is_copied && !copied->code)
        *copied = *err;
}

static void job_table_end_orphans(struct gp_table *t);

void job_table_break(struct gp_table *t, int code, const char *text)
{
    if (t->failure.code)
        return;
    err_set(&t->failure, code < 0 ? code : -EPROTO, "%s", text);
    list_for_each_entry (struct row_call, call, &t->job->tables->calls, node)
        if (call->batch->table == t)
            job_table_fail_call(call, &t->failure);
    job_table_end_orphans(t);
}

/* ---- a lost lane ---- */

static void append_shards(const struct gp_table *t, uint32_t lane, char *text)
{
    uint32_t named = 0, more = 0;
    for (uint32_t i = 0; i < table_route_shards(&t->route); i++) {
        if (t->route.shards[i].lane != lane)
            continue;
        if (named == SHARDS_NAMED_MAX)
            more++;
        else
            text_append(text, ERR_TEXT_BYTES, "%s%u", named++ ? ", " : "", i);
    }
    if (more)
        text_append(text, ERR_TEXT_BYTES, " and %u more", more);
}

static void job_table_lose(struct gp_table *t, uint32_t lane, const char *name)
{
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text, "table '%.100s': %s is lost, and with it the rows of shards ",
             t->name, name);
    append_shards(t, lane, text);
    text_append(text, sizeof text, ", which have no copy; start the job again");
    job_table_break(t, -EOWNERDEAD, text);
}

void job_tables_fail_lane(struct gp_job *job, uint32_t lane, int code, const char *name)
{
    bool waits = code >= 0 && job_tables_are_copied(job);
    if (!job_tables_are_on(job, lane))
        return;
    list_for_each_entry (struct table_lane, lost, &job->tables->lanes, node) {
        if (lost->lane != lane)
            continue;
        lost->is_orphan = waits;
        lost->is_lost = !waits;
        table_lane_set_unsent(job, lost, false);
    }
    for_each_table (t, job) {
        if (waits || !job_table_is_on(t, lane))
            continue;
        if (code < 0)
            job_table_break(t, code, name);
        else
            job_table_lose(t, lane, name);
    }
}

void job_tables_lose(struct gp_job *job, uint32_t lane, int code, const char *name)
{
    job_tables_fail_lane(job, lane, code, name);
    job_tables_end_lane(job, lane, code < 0 ? code : -EOWNERDEAD, name);
}

void job_tables_end_lane(struct gp_job *job, uint32_t lane, int code, const char *text)
{
    bool is_lost = false;
    if (!job->tables)
        return;
    list_for_each_entry (const struct table_lane, found, &job->tables->lanes, node)
        is_lost |= found->lane == lane && found->is_lost;
    if (is_lost)
        row_calls_lose(job, NULL, lane, code, text);
    for_each_table (t, job)
        /* the tables of this call have failed, so a successor of the lane will not answer */
        if (t->failure.code)
            row_calls_lose(job, t, lane, t->failure.code, t->failure.text);
}

/* Ends the parts of a failed table on lanes whose connections have ended. */
static void job_table_end_orphans(struct gp_table *t)
{
    list_for_each_entry (const struct table_lane, lane, &t->job->tables->lanes, node)
        if (lane->is_orphan)
            row_calls_lose(t->job, t, lane->lane, t->failure.code, t->failure.text);
}

/* ---- new tables ---- */

/* Inserts the table by ascending number, because a CLOCK record lists tables in this order. */
static void job_table_insert(struct gp_table *t)
{
    struct list *at = &t->job->tables->tables;
    while (at->previous != &t->job->tables->tables) {
        const struct gp_table *before = list_entry(at->previous, struct gp_table, node);
        if (before->route.table < t->route.table)
            break;
        at = at->previous;
    }
    list_insert_before(at, &t->node);
}

/* Fails the table if one of its lanes was lost before, because no further record is sent to this
 * lane. */
static void job_table_check_lanes(struct gp_table *t)
{
    char name[32];
    for (uint32_t i = 0; i < t->route.lanes_count; i++) {
        if (!job_tables_lane(t->job, t->route.lanes[i], t->route.groups[i])->is_lost)
            continue;
        snprintf(name, sizeof name, "lane %u", t->route.lanes[i]);
        job_table_lose(t, t->route.lanes[i], name);
    }
}

/* Marks the standing of this rank in the table as due at each lane that has taken over shards. Such
 * a lane waits for the standing of every rank in each of its tables, even in a table that a rank
 * declares later. */
static void job_table_must_stand(const struct gp_table *t)
{
    for (uint32_t i = 0; i < t->route.lanes_count; i++)
        if (t->route.groups[i] > 0)
            job_tables_lane(t->job, t->route.lanes[i], t->route.groups[i])->must_stand = true;
}

int job_table_add(struct gp_job *job, const char *name, const struct table_terms *terms,
                  struct table_route *route, struct gp_table **ret_table)
{
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < route->lanes_count; i++)
        error = job_tables_add_lane(job, route->lanes[i], route->groups[i]);
    struct gp_table *t =
        error == 0 ? calloc(1, sizeof *t + sizeof *t->terms + sizeof *t->settings) : NULL;
    if (!t)
        return -ENOMEM;
    t->job = job;
    t->terms = (struct table_terms *)(t + 1);
    *t->terms = *terms;
    t->settings = (gp_row_settings *)(t->terms + 1);
    t->route = *route;
    t->consistency = terms->consistency ? terms->consistency : TABLE_TERMS_BSP;
    t->staleness = terms->staleness;
    *route = (struct table_route){0};
    snprintf(t->name, sizeof t->name, "%s", name);
    list_init(&t->batches);
    job_table_insert(t);
    job->tables->use->keeps_changes |= terms->durability == DURABILITY_REPLICA;
    job_table_must_stand(t);
    job_table_check_lanes(t);
    *ret_table = t;
    return 0;
}

/* ---- the end ---- */

static void job_table_free(struct gp_table *t)
{
    list_for_each_safe_entry (struct gp_batch, b, &t->batches, node)
        batch_free(b);
    list_remove(&t->node);
    table_route_fini(&t->route);
    free(t);
}

/* Ends the calls that no lane will answer, because all connections are closed. */
static void job_tables_end_calls(struct job_tables *tables)
{
    list_for_each_safe_entry (struct row_call, call, &tables->calls, node)
        row_call_end(call);
}

static void changes_free(struct list *changes)
{
    list_for_each_safe_entry (struct table_change, change, changes, node)
        free(change);
}

void job_tables_free(struct gp_job *job)
{
    struct job_tables *tables = job->tables;
    if (!tables)
        return;
    job_tables_end_calls(tables);
    list_for_each_safe_entry (struct gp_table, t, &tables->tables, node)
        job_table_free(t);
    list_for_each_safe_entry (struct table_lane, lane, &tables->lanes, node)
        free(lane);
    row_pool_fini(tables->pool);
    changes_free(&tables->changes);
    changes_free(&tables->spare_changes);
    exchanges_fini(&tables->exchanges);
    pthread_cond_destroy(&tables->use->laid);
    free(tables->stage);
    free(tables);
    job->tables = NULL;
}
