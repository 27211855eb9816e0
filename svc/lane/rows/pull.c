/* Answers pulls entry by entry of their directories, in batches. Keys are copied before they are
 * checked; entries are read again for each batch, because the worker may change them. A pull
 * changes no row, and creates none. RULES.md: A1, A7. */
#include "svc/lane/rows/pull.h"

#include "svc/lane/rows/request.h"
#include "svc/lane/rows/table.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <string.h>

#define BATCH_KEYS 256u
#define TURN_BYTES (256u << 10) /* about one long chunk */

/* A run of keys of one shard. */
struct pull_batch {
    struct lane_table *table;
    struct lane_shard *shard;
    struct row_request *pull;
    uint32_t first, count; /* keys of the request */
    uint64_t keys[BATCH_KEYS];
    uint32_t rows[BATCH_KEYS];
};

/* Reads the next entry of the directory. -EBADMSG, -EFAULT: the worker breaks the protocol. */
static int pull_read_span(const struct lane_table *table, const struct row_request *pull,
                          struct row_span *ret_span)
{
    struct row_directory directory;
    int error = request_map_directory(table, pull, &directory)
                    ?: row_directory_read(&directory, pull->entry, ret_span);
    if (error < 0)
        return error;
    bool is_here = table_shard_at(table, ret_span->shard) && pull->key < ret_span->count;
    return is_here ? 0 : -EBADMSG;
}

/* Copies the keys of the batch. -EFAULT: the worker does not lend them; -EBADMSG: a key belongs to
 * another shard. */
static int batch_read_keys(struct pull_batch *b)
{
    const void *keys = request_map_keys(b->pull, b->first, b->count);
    if (!keys)
        return -EFAULT;
    memcpy(b->keys, keys, b->count * sizeof *b->keys);
    for (uint32_t i = 0; i < b->count; i++)
        if (!table_shard_has_range(b->shard->store, b->keys[i]))
            return -EBADMSG;
    return 0;
}

static void batch_write_row(const struct pull_batch *b, uint32_t index, char *ret_row)
{
    const struct lane_table *table = b->table;
    char initial[ROW_DIM_MAX * sizeof(float)] __attribute__((aligned(8)));
    const void *values = initial;
    if (b->rows[index] != ROWS_NONE)
        values = shard_values(b->shard->store, b->rows[index]);
    else
        table->initial(&table->initial_spec, mixed_key_undo(b->keys[index], table->salt),
                       table->terms->dim, initial);
    if (table->terms->dtype == table->terms->wire)
        memcpy(ret_row, values, table->wire_bytes);
    else
        reduce_convert(table->terms->dtype, table->terms->wire, values, ret_row, table->terms->dim);
}

static int batch_write(struct pull_batch *b)
{
    char *rows = request_map_rows(b->table, b->pull, b->first, b->count);
    if (!rows)
        return -EFAULT;
    table_shard_find(b->shard->store, b->keys, b->count, b->rows);
    for (uint32_t i = 0; i < b->count; i++)
        batch_write_row(b, i, rows + i * b->table->wire_bytes);
    return 0;
}

/* Returns whether the pull must wait for a push that is not applied yet. A pull must see the
 * earlier pushes of its own rank. With SSP, a pull must also see all pushes up to a certain clock,
 * which all ranks have ended. */
static bool pull_awaits_push(const struct lane_table *table, const struct row_request *pull)
{
    bool is_ssp = table->terms->consistency == TABLE_TERMS_SSP;
    uint64_t clock = pull->record->clock, staleness = table->terms->staleness;
    uint64_t first = is_ssp && clock > staleness ? clock - staleness : 0; /* seen up to this one */
    list_for_each_entry (const struct row_request, push, &table->queues->pushes, link) {
        bool is_own = push->worker == pull->worker;
        if (push->record->clock < first ||
            (is_own && push->record->sequence < pull->record->sequence))
            return true;
    }
    return false;
}

/* Returns whether the shard of the entry has all updates that the pull has to see. */
static bool pull_may_go_on(const struct lane_table *table, const struct row_request *pull,
                           const struct row_span *span)
{
    const struct lane_shard *shard = table_shard_at(table, span->shard);
    enum table_consistency consistency = (enum table_consistency)table->terms->consistency;
    return table_pull_may_start(table->clocks, consistency, table->terms->staleness,
                                &shard->progress, pull->record->clock) &&
           (consistency == TABLE_BSP || !pull_awaits_push(table, pull));
}

/* Answers the next keys of an entry. Returns their number, or a negative errno if the worker breaks
 * the protocol. */
static int pull_answer(struct lane_table *table, struct row_request *pull,
                       const struct row_span *span)
{
    struct pull_batch batch = {.table = table,
                               .shard = table_shard_at(table, span->shard),
                               .pull = pull,
                               .first = span->first + pull->key};
    uint32_t left = span->count - pull->key;
    batch.count = left < BATCH_KEYS ? left : BATCH_KEYS;
    int error = batch_read_keys(&batch) ?: batch_write(&batch);
    if (error < 0)
        return error;
    pull->key += batch.count;
    if (pull->key == span->count) {
        pull->entry++;
        pull->key = 0;
    }
    return (int)batch.count;
}

/* Works on a pull until its end, until a shard is not ready, or until TURN_BYTES are answered.
 * Returns the number of answered keys; negative: the worker breaks the protocol. */
static int pull_go_on(struct lane_table *table, struct row_request *pull)
{
    uint32_t most = (uint32_t)(TURN_BYTES / (table->wire_bytes + sizeof(uint64_t))), answered = 0;
    while (pull->entry < pull->record->spans && (answered == 0 || answered < most)) {
        struct row_span span;
        int count = pull_read_span(table, pull, &span);
        if (count == 0 && !pull_may_go_on(table, pull, &span))
            break;
        if (count == 0)
            count = pull_answer(table, pull, &span);
        if (count < 0)
            return count;
        answered += (uint32_t)count;
    }
    return (int)answered;
}

/* Returns whether there was work. If pages of a worker cannot be read, the worker gets no word,
 * because its connection is about to end. */
static bool pull_try(struct lane_table *table, struct row_request *pull)
{
    int answered = pull_go_on(table, pull);
    if (answered < 0) {
        request_evict(pull, answered);
        return true;
    }
    bool is_whole = pull->entry == pull->record->spans && fabric_is_sound(pull->worker->conn);
    if (is_whole)
        request_end(table, pull);
    return answered > 0;
}

bool pull_work(struct lane_tables *tables)
{
    list_for_each_entry (struct lane_table, table, &tables->tables, link) {
        list_for_each_safe_entry (struct row_request, pull, &table->queues->pulls, link) {
            if (tables->job->failure)
                return false;
            if (pull_try(table, pull))
                return true;
        }
    }
    return false;
}
