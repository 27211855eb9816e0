/* Owns the runs of a job. A run consists of consecutive entries of a push whose keys follow without
 * a gap; the lane reads its keys with one read, and its rows with another read. A share with more
 * than ROW_SUMS_BYTES is not read ahead, because its reads are long enough alone. All bytes come
 * from peers and are checked by their reader. RULES.md: A103. */
#include "svc/lane/rows/apply/ahead.h"

#include "svc/lane/rows/apply/parts.h"
#include "svc/lane/rows/directory.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/request.h"

#include <errno.h>

#define RUN_ALIGN UINT64_C(64)

static uint64_t run_bytes(const struct lane_table *table, uint64_t count)
{
    return count * (sizeof(uint64_t) + table->wire_bytes);
}

static char *run_rows(const struct row_run *run)
{
    return run->memory + run->count * sizeof(uint64_t);
}

/* ---- choice of the shards ---- */

/* Adds the keys of an entry to the last run of the push, or begins another run. Returns false if
 * the entry is too long, or if no run is free. */
static bool ahead_add(struct row_ahead *ahead, const struct lane_table *table,
                      const struct row_request *push, const struct row_span *span)
{
    struct row_run *last = ahead->runs_count > 0 ? &ahead->runs[ahead->runs_count - 1] : NULL;
    bool follows = last && last->push == push && last->first + last->count == span->first &&
                   run_bytes(table, (uint64_t)last->count + span->count) <= ROW_SUMS_BYTES;
    if (follows) {
        last->count += span->count;
        return true;
    }
    if (ahead->runs_count == AHEAD_RUNS || run_bytes(table, span->count) > ROW_SUMS_BYTES)
        return false;
    ahead->runs[ahead->runs_count++] =
        (struct row_run){.push = push, .first = span->first, .count = span->count};
    return true;
}

/* Adds the copied entries of the push in the shards before ahead->end. If later entries are not
 * copied yet, ahead->end becomes the number of the shard behind the last copied entry. */
static bool ahead_add_push(struct row_ahead *ahead, const struct lane_table *table,
                           struct row_request *push)
{
    uint32_t entry = push->entry, behind = table->shard + 1;
    struct row_span span;
    for (; entry < push->record->spans && directory_is_copied(push, entry); entry++) {
        if (directory_entry(table, push, entry, &span) < 0)
            return false;
        if (span.shard >= ahead->end)
            return true;
        if (span.shard >= table->shard && !ahead_add(ahead, table, push, &span))
            return false;
        behind = span.shard >= table->shard ? span.shard + 1 : behind;
    }
    if (entry < push->record->spans && behind < ahead->end)
        ahead->end = behind;
    return true;
}

/* Places the runs in the memory. Returns false if they do not fit. */
static bool ahead_place(struct row_ahead *ahead, const struct lane_table *table)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < ahead->runs_count; i++) {
        struct row_run *run = &ahead->runs[i];
        uint64_t bytes = run_bytes(table, run->count);
        if (bytes > AHEAD_BYTES - used)
            return false;
        run->memory = ahead->memory + used;
        used += (bytes + RUN_ALIGN - 1) / RUN_ALIGN * RUN_ALIGN;
        used = used < AHEAD_BYTES ? used : AHEAD_BYTES;
    }
    return true;
}

/* Sets the runs of the shards from table->shard to `end` - 1. Returns false if they do not fit. */
static bool ahead_try(struct row_ahead *ahead, const struct lane_table *table, uint32_t end)
{
    ahead->end = end;
    ahead->runs_count = 0;
    list_for_each_entry (struct row_request, push, &table->queues->pushes, link)
        if (parts_is_due(table, push) && !request_is_mapped(push) &&
            !ahead_add_push(ahead, table, push))
            return false;
    return ahead_place(ahead, table);
}

/* Chooses the shards. Tries all remaining shards first, then half of them, and so on. If the next
 * shard alone does not fit, this shard gets no run. */
static void ahead_choose(struct row_ahead *ahead, const struct lane_table *table)
{
    uint32_t end = table->terms->shards;
    bool fits = ahead_try(ahead, table, end);
    while (!fits && end > table->shard + 1) {
        end = table->shard + (end - table->shard + 1) / 2;
        fits = ahead_try(ahead, table, end);
    }
    if (!fits)
        ahead->runs_count = 0;
    ahead->table = table;
    ahead->posted = 0;
}

/* ---- reads ---- */

static bool ahead_is_busy(const struct row_ahead *ahead)
{
    for (uint32_t i = 0; i < ahead->runs_count; i++)
        if (ahead->runs[i].keys.state == FETCH_POSTED || ahead->runs[i].rows.state == FETCH_POSTED)
            return true;
    return false;
}

static int run_post(struct row_run *run, const struct lane_table *table)
{
    const struct record_rows *r = run->push->record;
    const struct worker *w = run->push->worker;
    int error = 0;
    if (run->keys.state == FETCH_IDLE)
        error = network_read(&run->keys, w, r->keys_region,
                             r->keys_offset + run->first * sizeof(uint64_t), run->memory,
                             run->count * sizeof(uint64_t));
    if (run->keys.state == FETCH_IDLE)
        return error;
    if (run->rows.state == FETCH_IDLE)
        error = network_read(&run->rows, w, r->rows_region,
                             r->rows_offset + (uint64_t)run->first * table->wire_bytes,
                             run_rows(run), run->count * table->wire_bytes);
    return run->rows.state == FETCH_IDLE ? error : 0;
}

/* Posts further reads, as far as the queues of the connections have room. */
static int ahead_post(struct row_ahead *ahead, const struct lane_table *table)
{
    for (; ahead->posted < ahead->runs_count; ahead->posted++) {
        const struct row_run *run = &ahead->runs[ahead->posted];
        int error = run_post(&ahead->runs[ahead->posted], table);
        if (error == -EAGAIN)
            return 0;
        if (error < 0) {
            request_evict(run->push, error);
            return error;
        }
    }
    return 0;
}

int ahead_read(struct row_network *network, const struct lane_table *table)
{
    struct row_ahead *ahead = &network->ahead;
    if (ahead->table != table || table->shard >= ahead->end) {
        if (ahead_is_busy(ahead))
            return -EAGAIN;
        ahead_choose(ahead, table);
    }
    return ahead_post(ahead, table);
}

/* ---- results ---- */

static bool run_has(const struct row_run *run, const struct row_request *push,
                    const struct row_span *span)
{
    return run->push == push && span->first >= run->first &&
           span->first - run->first <= run->count &&
           span->count <= run->count - (span->first - run->first);
}

int ahead_find(const struct row_network *network, const struct lane_table *table,
               const struct row_request *push, const struct row_span *span, uint32_t *at,
               const uint64_t **ret_keys, const char **ret_rows)
{
    const struct row_ahead *ahead = &network->ahead;
    uint32_t found = *at;
    *ret_keys = NULL;
    while (found < ahead->runs_count && !run_has(&ahead->runs[found], push, span))
        found++;
    if (found == ahead->runs_count)
        return 0;
    const struct row_run *run = &ahead->runs[found];
    if (run->keys.state != FETCH_DONE || run->rows.state != FETCH_DONE)
        return -EAGAIN;
    uint32_t skipped = span->first - run->first;
    *at = found;
    *ret_keys = (const uint64_t *)(const void *)run->memory + skipped;
    *ret_rows = run_rows(run) + (size_t)skipped * table->wire_bytes;
    return 0;
}

/* ---- ends ---- */

static void ahead_drop(struct row_ahead *ahead)
{
    for (uint32_t i = 0; i < ahead->runs_count; i++) {
        network_abort(&ahead->runs[i].keys);
        network_abort(&ahead->runs[i].rows);
    }
    ahead->table = NULL;
}

void ahead_end(const struct lane_table *table)
{
    struct row_network *network = table->job->tables->network;
    if (network && network->ahead.table == table)
        ahead_drop(&network->ahead);
}

void ahead_forget(struct lane_tables *tables, uint32_t rank)
{
    struct row_ahead *ahead = tables->network ? &tables->network->ahead : NULL;
    bool has_rank = false;
    for (uint32_t i = 0; ahead && ahead->table && i < ahead->runs_count; i++)
        has_rank |= ahead->runs[i].push->worker->number == rank;
    if (has_rank)
        ahead_drop(ahead);
}
