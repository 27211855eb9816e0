/* Stops the updates of tables, and copies their rows. The rows of an import come from an operator's
 * file, through the coordinator, so each key is compared with the shards of the lane. RULES.md:
 * A104. */
#include "svc/lane/rows/bulk/bulk.h"

#include "svc/lane/job/failure.h"
#include "svc/lane/job/table.h"
#include "svc/lane/lane.h"
#include "svc/lane/rows/log/row_log.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/pull.h"
#include "svc/lane/rows/room/room.h"
#include "svc/lane/rows/table.h"
#include "svc/lane/turn/policy.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <string.h>

#define WALK_ROWS 64u

static struct lane_table *bulk_table(struct lane *lane, uint32_t job_id, uint32_t table)
{
    struct lane_job *job = job_find(lane, job_id);
    return job ? table_find(job, table) : NULL;
}

/* ---- the hold ---- */

/* Returns whether a clock or push is applied to some rows of this lane, but not to all. After a
 * promotion, the former owner may have applied this part. */
static bool bulk_is_midst(const struct lane_table *table)
{
    return table->shard > 0 || table_has_begun_clock(table) ||
           table->job->tables->apply->table == table || bulk_awaits_push(table);
}

static bool bulk_has_begun_pull(const struct lane_table *table)
{
    list_for_each_entry (const struct row_request, pull, &table->queues->pulls, link)
        if (pull_has_begun(pull))
            return true;
    return false;
}

static bool bulk_is_held(const struct lane_table *table)
{
    bool is_behind = table_is_bsp(table) && table->clock < table->hold->clock;
    return table->hold->is_on && !is_behind && !bulk_is_midst(table) &&
           !(table->hold->loads && bulk_has_begun_pull(table));
}

static uint64_t bulk_clock(const struct lane_table *table)
{
    return table_is_bsp(table) ? table->clock : table->clocks->minimum;
}

uint64_t bulk_updates_before(const struct lane_table *table, uint64_t clock)
{
    int64_t updates = (int64_t)(clock - 1 + table->hold->steps_before);
    return updates > 0 ? (uint64_t)updates : 0;
}

static size_t bulk_values_bytes(const struct lane_table *table) { return table->value_bytes; }

static size_t bulk_moments_bytes(const struct lane_table *table)
{
    return (size_t)row_moments(table->terms->rule, table->terms->dim) * sizeof(float);
}

static size_t bulk_row_bytes(const struct lane_table *table)
{
    return sizeof(uint64_t) + bulk_values_bytes(table) + bulk_moments_bytes(table);
}

static uint64_t bulk_rows(const struct lane_table *table)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < table->terms->shards; i++)
        rows += table->shards[i] ? table->shards[i]->store->rows.count : 0;
    return rows;
}

int bulk_hold(struct lane *lane, uint32_t job, uint32_t id, uint64_t clock, bool loads,
              struct bulk_standing *ret_standing)
{
    struct lane_table *table = bulk_table(lane, job, id);
    if (!table)
        return -ENOENT;
    uint64_t least = table->clock + bulk_is_midst(table);
    table->hold->clock = clock > least ? clock : least;
    /* imported rows are not logged, so the log ends; another log waits for the end of the hold */
    if (loads && !table->hold->loads)
        row_log_break(table->job->tables);
    table->hold->is_on = true;
    table->hold->loads = loads;
    job_wake(table->job);
    *ret_standing = (struct bulk_standing){.is_held = bulk_is_held(table),
                                           .is_bsp = table_is_bsp(table),
                                           .clock = bulk_clock(table),
                                           .steps = bulk_updates_before(table, bulk_clock(table)),
                                           .rows = bulk_rows(table),
                                           .row_bytes = bulk_row_bytes(table)};
    return 0;
}

/* Fails the job if an import was not completed, because a table with only some of its rows or
 * updates would train with wrong values. `is_end`: the caller ends an import whose hold the lane
 * has ended before. */
static void bulk_fail_part(const struct lane_table *table, bool is_end)
{
    if (table->hold->has_loaded || is_end)
        job_fail(table->job, -ECANCELED,
                 "table '%s' of job '%s' has a part of its rows, because its import has ended "
                 "early; start the job again, and import again",
                 table->name, table->job->name);
}

static void table_continue(struct lane_table *table)
{
    if (table->hold->loads)
        room_forget(table->job->tables);
    table->hold->is_on = table->hold->loads = table->hold->has_loaded = false;
    table->queues->logged.is_state_due = true;
    job_wake(table->job);
}

int bulk_continue(struct lane *lane, uint32_t job, uint32_t id, const struct bulk_updates *updates)
{
    struct lane_table *table = bulk_table(lane, job, id);
    if (!table)
        return -ENOENT;
    int error = updates && !table->hold->loads ? -EBUSY : 0;
    if (!updates || error < 0)
        bulk_fail_part(table, error < 0);
    else if (updates->count <= BULK_STEPS_MAX)
        table->hold->steps_before = updates->count - (updates->clock - 1);
    table_continue(table);
    return error;
}

void bulk_continue_all(struct lane *lane)
{
    list_for_each_entry (struct lane_job, job, &lane->jobs, link) {
        if (!job->tables)
            continue;
        list_for_each_entry (struct lane_table, table, &job->tables->tables, link)
            if (table->hold->is_on) {
                bulk_fail_part(table, false);
                table_continue(table);
            }
    }
}

/* ---- rows ---- */

static void bulk_copy_out(const struct lane_table *table, const struct table_shard *store,
                          uint32_t row, char *ret_row)
{
    uint64_t key = mixed_key_undo(rows_key(&store->rows, row), table->salt);
    size_t values = bulk_values_bytes(table);
    memcpy(ret_row, &key, sizeof key);
    memcpy(ret_row + sizeof key, shard_values(store, row), values);
    memcpy(ret_row + sizeof key + values, shard_moments(store, row), bulk_moments_bytes(table));
}

/* Copies as many rows as fit, beginning with key part->next. */
static void bulk_walk(const struct lane_table *table, const struct table_shard *store,
                      char *ret_rows, size_t most, struct bulk_part *part)
{
    size_t row_bytes = bulk_row_bytes(table);
    uint32_t rows[WALK_ROWS];
    while (!part->is_end && part->bytes + row_bytes <= most) {
        size_t fit = (most - part->bytes) / row_bytes, wanted = fit < WALK_ROWS ? fit : WALK_ROWS;
        size_t count = table_shard_walk(store, part->next, rows, wanted);
        for (size_t i = 0; i < count; i++) {
            bulk_copy_out(table, store, rows[i], ret_rows + part->bytes);
            part->bytes += row_bytes;
        }
        uint64_t last = count > 0 ? rows_key(&store->rows, rows[count - 1]) : UINT64_MAX;
        part->is_end = count < wanted || last == UINT64_MAX;
        part->next = last + !part->is_end;
    }
}

int bulk_read(struct lane *lane, uint32_t job, uint32_t id, uint32_t shard, uint64_t from,
              char *ret_rows, size_t most, struct bulk_part *ret_part)
{
    const struct lane_table *table = bulk_table(lane, job, id);
    const struct lane_shard *of = table ? table_shard_at(table, shard) : NULL;
    if (!of)
        return -ENOENT;
    if (!bulk_is_held(table))
        return -EBUSY;
    size_t longest = BULK_ROWS_MAX * bulk_row_bytes(table);
    most = most < longest ? most : longest;
    *ret_part = (struct bulk_part){.next = from};
    bulk_walk(table, of->store, ret_rows, most, ret_part);
    return 0;
}

/* Stores one row of an import in its shard. */
static int bulk_put(const struct lane_table *table, const char *row)
{
    uint64_t key, mixed;
    uint32_t at;
    memcpy(&key, row, sizeof key);
    mixed = mixed_key(key, table->salt);
    struct lane_shard *shard = table_shard_at(table, mixed_key_shard(mixed, table->shard_bits));
    if (!shard || (table->terms->keys > 0 && key >= table->terms->keys))
        return -ERANGE;
    int64_t added = table_shard_add(shard->store, &mixed, 1, &at);
    if (added < 0)
        return (int)added;
    memcpy(shard_values(shard->store, at), row + sizeof key, bulk_values_bytes(table));
    memcpy(shard_moments(shard->store, at), row + sizeof key + bulk_values_bytes(table),
           bulk_moments_bytes(table));
    return 0;
}

int bulk_write(struct lane *lane, uint32_t job, uint32_t id, const void *rows, size_t bytes)
{
    struct lane_table *table = bulk_table(lane, job, id);
    size_t row_bytes = table ? bulk_row_bytes(table) : 1;
    int error = 0;
    if (!table)
        return -ENOENT;
    if (!bulk_is_held(table) || !table->hold->loads)
        return -EBUSY;
    if (bytes % row_bytes != 0 || bytes / row_bytes > BULK_ROWS_MAX)
        return -EBADMSG;
    table->hold->has_loaded |= bytes > 0;
    for (size_t at = 0; error == 0 && at < bytes; at += row_bytes)
        error = bulk_put(table, (const char *)rows + at);
    if (error == 0)
        room_check(table->job->tables);
    else if (room_lacks(table->job->tables, error))
        return -EAGAIN;
    return error;
}
