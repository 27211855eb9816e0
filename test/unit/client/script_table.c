/* Scripted answers about tables for service_rig.h: routes from the coordinator, and answers of the
 * lanes. */
#include "svc/wire/mixed_key.h"
#include "test/unit/client/service_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- the coordinator ---- */

static struct script_table *table_of(struct service_rig *rig, const Gradpool__Wire__TableSpec *spec)
{
    struct script_tables *all = &rig->tables;
    for (uint32_t i = 0; i < all->count; i++)
        if (strcmp(all->tables[i].name, spec->name) == 0)
            return &all->tables[i];
    assert_true(all->count < SCRIPT_TABLES_MAX);
    struct script_table *t = &all->tables[all->count++];
    *t = (struct script_table){.number = 10 * all->count, .shards = spec->shards, .dim = spec->dim};
    snprintf(t->name, sizeof t->name, "%s", spec->name);
    return t;
}

static uint32_t lane_of(const struct script_tables *all, uint32_t shard)
{
    return all->first_lane + shard % all->lanes;
}

void script_declare_tables(struct service_rig *rig, struct channel *channel,
                           const envelope *request)
{
    const struct script_table *t = table_of(rig, request->declare_request->tables[0]);
    Gradpool__Wire__ShardRoute shards[64], *pointers[64];
    Gradpool__Wire__TableRoute route = GRADPOOL__WIRE__TABLE_ROUTE__INIT, *routes = &route;
    Gradpool__Wire__DeclareReply declared = GRADPOOL__WIRE__DECLARE_REPLY__INIT;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    assert_true(t->shards <= 64);
    for (uint32_t i = 0; i < t->shards; i++) {
        gradpool__wire__shard_route__init(&shards[i]);
        shards[i].task = shards[i].epoch = shards[i].lost_epoch = 1;
        shards[i].lane = lane_of(&rig->tables, i);
        pointers[i] = &shards[i];
    }
    route.table = t->number;
    route.salt = SCRIPT_TABLE_SALT;
    route.n_shards = t->shards;
    route.shards = pointers;
    declared.n_tables = 1;
    declared.tables = &routes;
    message.id = request->id;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_DECLARE_REPLY;
    message.declare_reply = &declared;
    channel_send(channel, &message);
}

void script_fail_table(struct service_rig *rig, uint32_t number, int code, const char *text)
{
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__TableFailure failure = GRADPOOL__WIRE__TABLE_FAILURE__INIT;
    failure.table = number;
    failure.code = code;
    failure.text = (char *)text;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_FAILURE;
    message.table_failure = &failure;
    script_send_all(rig, &message);
}

/* ---- the lanes ---- */

static struct script_table *table_find_script(struct service_rig *rig, uint32_t number)
{
    for (uint32_t i = 0; i < rig->tables.count; i++)
        if (rig->tables.tables[i].number == number)
            return &rig->tables.tables[i];
    fail_msg("no table %u", number);
    return NULL;
}

static struct script_worker *worker_of(struct service_rig *rig, const struct script_table_record *r)
{
    return &rig->lanes[r->lane].workers[r->rank];
}

static void *map(struct service_rig *rig, const struct script_table_record *r, uint32_t region,
                 uint64_t offset, uint64_t bytes)
{
    void *at = fabric_map(worker_of(rig, r)->conn, region, offset, bytes);
    assert_non_null(at);
    return at;
}

static void write_row(const struct script_table *t, uint64_t key, uint64_t clock, float *ret_row)
{
    ret_row[0] = (float)key + (float)clock / 1024;
    for (uint32_t e = 1; e < t->dim; e++)
        ret_row[e] = -(float)e;
}

static void serve_key(struct script_table *t, const struct record_rows *rows, uint64_t mixed,
                      float *row)
{
    uint64_t key = mixed_key_undo(mixed, SCRIPT_TABLE_SALT);
    if (rows->operation == RECORD_PULL)
        return write_row(t, key, rows->clock, row);
    t->keys_pushed++;
    t->pushed += (double)key * row[0];
}

/* Reads the keys of each entry of the request. Each key must belong to the entry's shard. */
static void serve_keys(struct service_rig *rig, const struct script_table_record *r)
{
    const struct record_rows *rows = &r->rows;
    struct script_table *t = table_find_script(rig, rows->table);
    const struct row_span *spans =
        map(rig, r, rows->directory_region, rows->directory_offset, rows->spans * sizeof *spans);
    const uint64_t *keys =
        map(rig, r, rows->keys_region, rows->keys_offset, rows->keys * sizeof *keys);
    float *values = map(rig, r, rows->rows_region, rows->rows_offset,
                        (uint64_t)rows->keys * t->dim * sizeof(float));
    for (uint32_t i = 0; i < rows->spans; i++) {
        assert_int_equal(lane_of(&rig->tables, spans[i].shard), r->lane);
        for (uint32_t k = spans[i].first; k < spans[i].first + spans[i].count; k++) {
            assert_int_equal(mixed_key_shard(keys[k], (uint32_t)__builtin_ctz(t->shards)),
                             spans[i].shard);
            serve_key(t, rows, keys[k], values + (size_t)k * t->dim);
        }
    }
}

/* Returns whether all ranks have ended the clock for which the request waits. */
static bool is_due(const struct service_rig *rig, const struct script_table_record *r)
{
    uint64_t clock = r->rows.operation == RECORD_PUSH ? r->rows.clock : r->rows.clock - 1;
    for (uint32_t rank = 0; rank < rig->workers; rank++)
        if (rig->tables.ended[r->lane][rank] < clock)
            return false;
    return true;
}

void script_table_answer(struct service_rig *rig)
{
    for (uint32_t i = 0; i < rig->tables.records_count; i++) {
        struct script_table_record *r = &rig->tables.records[i];
        bool is_here = r->is_open && worker_of(rig, r)->conn;
        if (!is_here || rig->tables.holds_answers || !is_due(rig, r))
            continue;
        r->is_open = false;
        serve_keys(rig, r);
        fabric_notify(worker_of(rig, r)->conn, r->rows.word, NULL);
        fabric_flush(rig->lanes[r->lane].fabric);
    }
}

void script_table_say_error(struct service_rig *rig, uint32_t record, int code, const char *text)
{
    struct script_table_record *r = &rig->tables.records[record];
    assert_true(r->is_open);
    r->is_open = false;
    script_lane_say_error(rig, r->lane, r->rank, r->rows.word, code, text);
}

/* Answers a query with the ranks that have not reached the clock of the query. */
static void answer_table_query(struct script_worker *w, const struct record_query *query)
{
    struct service_rig *rig = w->lane->rig;
    struct record_clocks clocks = {.kind = RECORD_CLOCKS,
                                   .is_answer = 1,
                                   .table = query->piece,
                                   .minimum = 1,
                                   .word = query->word};
    for (uint32_t rank = 0; rank < rig->workers; rank++) {
        uint64_t clock = rig->tables.ended[w->lane->number][rank] + 1;
        if (clock >= query->round)
            continue;
        clocks.ranks[clocks.count] = rank;
        clocks.clocks[clocks.count++] = clock;
    }
    clocks.behind = clocks.count;
    if (!rig->is_silent)
        fabric_send(w->conn, &clocks, sizeof clocks, NULL, 0);
}

void script_table_hear(struct script_worker *w, const union record *record)
{
    struct service_rig *rig = w->lane->rig;
    struct script_tables *all = &rig->tables;
    assert_true(all->records_count < SCRIPT_TABLE_RECORDS_MAX);
    struct script_table_record *r = &all->records[all->records_count++];
    *r = (struct script_table_record){.lane = w->lane->number, .rank = w->rank};
    if (record->kind == RECORD_ROWS) {
        r->rows = record->rows;
        r->is_open = true;
    } else if (record->kind == RECORD_CLOCK) {
        r->clock = record->clock;
        if (record->clock.form == RECORD_CLOCK_ENDED)
            all->ended[w->lane->number][w->rank] = record->clock.clock;
    } else {
        r->query = record->query;
        answer_table_query(w, &record->query);
    }
    script_table_answer(rig);
}
