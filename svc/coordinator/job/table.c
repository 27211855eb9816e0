/* Tables of keyed rows: the ranks that declared each table, the entries of tables in the store, and
 * the routes of shards in messages. Owns struct job_table and its shards. */
#include "svc/coordinator/job/table.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/service.h"
#include "svc/wire/table/record_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

_Static_assert(sizeof((struct job_table *)0)->ranks == STORE_RANKS_BYTES, "stored as they are");

/* Terms, salt and failure of a table, stored in the column for the terms of a tensor. */
struct table_stored {
    struct table_terms terms;
    uint64_t salt;
    int32_t failure_code;
    uint8_t padding[20]; /* always 0 */
};
_Static_assert(sizeof(struct table_stored) == STORE_TERMS_BYTES, "a blob of fixed length");

static void table_destroy(struct job_table *table)
{
    free(table->shards);
    free(table->failure);
    free(table->terms);
    free(table->name);
    free(table);
}

static struct job_table *table_create(struct job *job, const char *name,
                                      const struct table_terms *terms)
{
    struct job_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    list_init(&table->link);
    table->job = job;
    table->terms = malloc(sizeof *table->terms);
    table->name = strdup(name);
    if (table->terms) {
        *table->terms = table_terms_filled(*terms);
        table->shards = calloc(table->terms->shards, sizeof *table->shards);
    }
    if (table->name && table->shards)
        return table;
    table_destroy(table);
    return NULL;
}

static void table_enter(struct job_table *table)
{
    struct table_list *tables = &table->job->index->tables;
    list_append(&tables->list, &table->link);
    tables->count++;
    tables->shards += table->terms->shards;
}

int job_table_add(struct job *job, const char *name, const struct table_terms *terms,
                  struct job_table **ret_table)
{
    struct job_table *table = table_create(job, name, terms);
    if (!table)
        return -ENOMEM;
    if (getrandom(&table->salt, sizeof table->salt, 0) != sizeof table->salt) {
        table_destroy(table);
        return -EIO;
    }
    table->id = job->next_tensor++;
    table_enter(table);
    *ret_table = table;
    return 0;
}

void job_table_remove(struct job_table *table)
{
    struct table_list *tables = &table->job->index->tables;
    table_each_shard(shard, table) shard_detach(table, shard);
    list_remove(&table->link);
    tables->count--;
    tables->shards -= table->terms->shards;
    table_destroy(table);
}

void job_tables_free(struct job *job)
{
    list_for_each_safe_entry (struct job_table, table, &job->index->tables.list, link)
        job_table_remove(table);
    free(job->index->tables.allowances);
    job->index->tables.allowances = NULL;
}

/* --- allowances --- */

struct row_allowance *job_allowance(const struct job *job, uint32_t lane)
{
    struct row_allowances *all = job->index->tables.allowances;
    for (size_t i = 0; all && i < all->count; i++)
        if (all->each[i].lane == lane)
            return &all->each[i];
    return NULL;
}

struct row_allowance *job_allowance_add(struct job *job, uint32_t lane)
{
    struct row_allowances **all = &job->index->tables.allowances;
    struct row_allowance *known = job_allowance(job, lane);
    size_t count = *all ? (*all)->count : 0;
    if (known)
        return known;
    struct row_allowances *grown =
        realloc(*all, sizeof *grown + (count + 1) * sizeof grown->each[0]);
    if (!grown)
        return NULL;
    *all = grown;
    grown->count = count + 1;
    grown->each[count] = (struct row_allowance){.lane = lane};
    return &grown->each[count];
}

void job_allowance_end(struct job *job, uint32_t lane)
{
    struct row_allowances *all = job->index->tables.allowances;
    struct row_allowance *ended = job_allowance(job, lane);
    if (ended)
        *ended = all->each[--all->count];
}

uint64_t job_allowances_bytes(const struct job *job)
{
    const struct row_allowances *all = job->index->tables.allowances;
    uint64_t bytes = 0;
    for (size_t i = 0; all && i < all->count; i++)
        bytes += all->each[i].bytes;
    return bytes;
}

struct job_table *job_table_find(const struct job *job, uint32_t id)
{
    job_each_table(table, job) if (table->id == id) return table;
    return NULL;
}

struct job_table *job_table_named(const struct job *job, const char *name)
{
    job_each_table(table, job) if (strcmp(table->name, name) == 0) return table;
    return NULL;
}

const struct job_table *job_table_on(const struct job *job, const struct lane *lane)
{
    job_each_table(table, job)
        table_each_shard(shard, table) if (!table->failure && shard->lane == lane) return table;
    return NULL;
}

const struct job_table *job_table_at(const struct job *job, const struct aggregator *a)
{
    job_each_table(table, job)
        table_each_shard(shard, table) if (!table->failure && shard->lane &&
                                           shard->lane->aggregator == a) return table;
    return NULL;
}

/* --- the store --- */

static struct table_stored table_stored_of(const struct job_table *table)
{
    return (struct table_stored){
        .terms = *table->terms, .salt = table->salt, .failure_code = table->failure_code};
}

static void table_fill_row(const struct job_table *table, const struct table_stored *stored,
                           struct store_row *ret_row)
{
    *ret_row = (struct store_row){.table = STORE_TENSOR};
    ret_row->tensor = (struct store_tensor){.job = table->job->id,
                                            .tensor = table->id,
                                            .name = table->name,
                                            .dtype = STORE_TABLE_DTYPE,
                                            .elements = table->terms->shards,
                                            .failure = table->failure ? table->failure : "",
                                            .ranks = (const uint8_t *)table->ranks,
                                            .members = (const uint8_t *)table->ranks,
                                            .terms = stored};
}

void job_shard_row(const struct job_table *table, uint32_t number, struct store_row *ret_row)
{
    const struct job_shard *shard = &table->shards[number];
    *ret_row = (struct store_row){.table = STORE_PIECE};
    ret_row->piece = (struct store_piece){.job = table->job->id,
                                          .piece = number,
                                          .tensor = table->id,
                                          .task = shard->task,
                                          .lane = shard->lane ? shard->lane->id : shard->stored,
                                          .epoch = shard->epoch,
                                          .first = shard->group,
                                          .elements = STORE_SHARD_PLACED,
                                          .lost_epoch = shard->epoch,
                                          .keeper = shard->replica,
                                          .former_keeper = shard->copy};
}

void job_shard_put(const struct job_table *table, uint32_t number)
{
    struct store_row row;
    job_shard_row(table, number, &row);
    store_put(table->job->service->store, &row);
}

uint32_t job_shards_on(const struct job *job, const struct lane *lane)
{
    uint32_t shards = 0;
    job_each_table(table, job) table_each_shard(shard, table) shards += shard->lane == lane;
    return shards;
}

const struct job_shard *job_shard_from(const struct job *job, uint32_t lane)
{
    const struct job_shard *found = NULL;
    job_each_table(table, job) table_each_shard(shard, table)
    {
        if (shard->former == lane && shard->lane && (!found || shard->group > found->group))
            found = shard;
    }
    return found;
}

void job_table_put(const struct job_table *table, bool with_shards)
{
    struct store *store = table->job->service->store;
    struct table_stored stored = table_stored_of(table);
    struct store_row row;
    table_fill_row(table, &stored, &row);
    store_put(store, &row);
    for (uint32_t i = 0; with_shards && i < table->terms->shards; i++)
        job_shard_put(table, i);
}

/* Checks the terms again. The terms were checked before they were stored, but the file may have
 * changed since. */
static bool table_row_is_sound(const struct store_tensor *row, const struct table_terms *terms)
{
    struct err err;
    return table_terms_check_name(row->name, &err) == 0 &&
           table_terms_check(terms, row->name, &err) == 0 && terms->shards == row->elements;
}

int job_table_restore(struct service *s, const struct store_tensor *row)
{
    struct job *job = jobs_find_id(s, row->job);
    struct table_stored stored;
    memcpy(&stored, row->terms, sizeof stored);
    if (!job || !table_row_is_sound(row, &stored.terms))
        return -EBADMSG;
    struct job_table *table = table_create(job, row->name, &stored.terms);
    if (!table)
        return -ENOMEM;
    table->id = row->tensor;
    table->salt = stored.salt;
    memcpy(table->ranks, row->ranks, sizeof table->ranks);
    if (*row->failure)
        table->failure = strdup(row->failure);
    table->failure_code = stored.failure_code < 0 ? stored.failure_code : -EINVAL;
    table_enter(table);
    return 0;
}

int job_shard_restore(struct job_table *table, const struct store_piece *row)
{
    bool is_promoted = row->elements == STORE_SHARD_PROMOTED;
    if (row->piece >= table->terms->shards || row->first > ROW_GROUP_MAX)
        return -EBADMSG;
    struct job_shard *shard = &table->shards[row->piece];
    shard->task = row->task;
    shard->epoch = row->epoch;
    shard->group = (uint32_t)row->first;
    shard->stored = row->lane;
    shard->former = is_promoted ? row->keeper : 0;
    shard->replica = is_promoted ? 0 : row->keeper;
    shard->copy = row->former_keeper;
    struct lane *lane = lane_find(table->job->service, row->lane);
    if (lane)
        shard_attach(table, shard, lane);
    return 0;
}

/* --- failing a table --- */

void job_table_send_failure(const struct job_table *table, const struct session *to)
{
    if (ranks_have(table->ranks, to->rank) && to->peer)
        peer_reply(to->peer, 0, TABLE_FAILURE, table_failure, .table = table->id,
                   .code = table->failure_code, .text = table->failure);
}

void job_table_fail(struct job_table *table, const struct session *except, int code,
                    const char *text)
{
    struct job *job = table->job;
    struct err err;
    if (table->failure)
        return;
    log_error("%s", text);
    table->failure = strdup(text);
    table->failure_code = code;
    store_begin(job->service->store);
    job_table_put(table, false);
    if (store_commit(job->service->store, &err) < 0)
        log_error("%s", err.text);
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (job->sessions[rank] && job->sessions[rank] != except)
            job_table_send_failure(table, job->sessions[rank]);
}

/* --- routes --- */

WIRE(TableRoute) * job_table_route(const struct job_table *table)
{
    size_t count = table->terms->shards;
    char *memory = calloc(1, sizeof(WIRE(TableRoute)) +
                                 count * (sizeof(WIRE(ShardRoute) *) + sizeof(WIRE(ShardRoute))));
    if (!memory)
        return NULL;
    WIRE(TableRoute) *route = (void *)memory;
    WIRE(ShardRoute) **list = (void *)(route + 1);
    WIRE(ShardRoute) *shards = (void *)(list + count);
    *route = MESSAGE_PART(TableRoute, table_route, .table = table->id, .salt = table->salt,
                          .n_shards = count, .shards = list);
    for (size_t i = 0; i < count; i++) {
        const struct job_shard *shard = &table->shards[i];
        list[i] = &shards[i];
        bool is_served = shard->lane && !shard->former;
        shards[i] = MESSAGE_PART(ShardRoute, shard_route, .task = shard->task,
                                 .lane = is_served ? shard->lane->id : 0, .epoch = shard->epoch,
                                 .lost_epoch = shard->epoch, .group = shard->group);
    }
    return route;
}
