/* Answers pulls entry by entry of their directories, in batches. Keys are copied before they are
 * checked; entries are read again for each batch, because the worker may change them. A pull
 * changes no row, and creates none. RULES.md: A1, A7. */
#include "svc/lane/rows/pull.h"

#include "svc/lane/rows/bulk/bulk.h"
#include "svc/lane/rows/counts/table_counts.h"
#include "svc/lane/rows/directory.h"
#include "svc/lane/rows/gather.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/port.h"
#include "svc/lane/rows/request.h"
#include "svc/lane/rows/table.h"

#include <errno.h>
#include <string.h>

#define TURN_BYTES (256u << 10) /* about one long chunk */

/* Reads the next entry of the directory. -EAGAIN: the entry has not arrived yet; -EBADMSG, -EFAULT:
 * the worker breaks the protocol. */
static int pull_read_span(const struct lane_table *table, struct row_request *pull,
                          struct row_span *ret_span)
{
    int error = directory_entry(table, pull, pull->entry, ret_span);
    if (error < 0)
        return error;
    bool is_here = table_shard_at(table, ret_span->shard) && pull->key < ret_span->count;
    return is_here ? 0 : -EBADMSG;
}

/* Returns whether the pull must wait for a push that is not applied yet. A pull must see the
 * earlier pushes of its own rank. With SSP, a pull must also see all pushes up to a certain clock,
 * which all ranks have ended. */
static bool pull_awaits_push(const struct lane_table *table, const struct row_request *pull)
{
    bool is_ssp = table->terms->consistency == TABLE_TERMS_SSP;
    uint64_t clock = pull->record->clock, staleness = table->terms->staleness;
    /* the pull must see the pushes of all clocks before this one */
    uint64_t first = is_ssp && clock > staleness ? clock - staleness : 0;
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

static void pull_advance(const struct lane_table *table, struct row_request *pull,
                         const struct row_span *span, uint32_t count)
{
    table->counts->pulled_keys += count;
    pull->key += count;
    if (pull->key < span->count)
        return;
    pull->entry++;
    pull->key = 0;
}

/* Answers the next keys of an entry. Returns their number, or a negative errno if the worker breaks
 * the protocol. */
static int pull_answer(const struct lane_table *table, struct row_request *pull,
                       const struct row_span *span)
{
    uint32_t first = span->first + pull->key, left = span->count - pull->key;
    uint32_t count = left < GATHER_KEYS ? left : GATHER_KEYS;
    uint64_t copied[GATHER_KEYS];
    const void *keys = request_map_keys(pull, first, count);
    char *rows = request_map_rows(table, pull, first, count);
    if (!keys || !rows)
        return -EFAULT;
    memcpy(copied, keys, count * sizeof *copied);
    int error = gather_rows(table, table_shard_at(table, span->shard), copied, count, rows);
    if (error < 0)
        return error;
    pull_advance(table, pull, span, count);
    return (int)count;
}

/* Works on a pull until the pull is complete, until a shard is not ready, or until TURN_BYTES are
 * answered. Returns the number of answered keys; negative: the worker breaks the protocol. */
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

/* A run of keys over a network. */
struct pull_run {
    uint32_t count;
    bool is_last; /* the request has no keys after this run */
};

/* Returns the next run: the next keys of the entry `span`, and of the copied entries behind it, as
 * long as their keys follow without a gap and their shards are ready. */
static struct pull_run pull_next_run(const struct lane_table *table, struct row_request *pull,
                                     const struct row_span *span)
{
    uint32_t most = port_keys_max(table), count = span->count - pull->key, entry = pull->entry + 1;
    struct row_span before = *span, next;
    while (count < most && entry < pull->record->spans && directory_is_copied(pull, entry)) {
        if (directory_entry(table, pull, entry, &next) < 0 ||
            next.first != before.first + before.count || !table_shard_at(table, next.shard) ||
            !pull_may_go_on(table, pull, &next))
            break;
        count += next.count;
        before = next;
        entry++;
    }
    return (struct pull_run){.count = count < most ? count : most,
                             .is_last = count <= most && entry == pull->record->spans};
}

/* Advances the pull by the keys of a complete run, whose entries are copied. Returns the number of
 * these keys, or an error of directory_entry(). */
static int pull_end_run(const struct lane_table *table, struct row_request *pull, uint32_t count)
{
    for (uint32_t left = count, part; left > 0; left -= part) {
        struct row_span span;
        int error = directory_entry(table, pull, pull->entry, &span);
        if (error < 0)
            return error;
        part = span.count - pull->key < left ? span.count - pull->key : left;
        pull_advance(table, pull, &span, part);
    }
    return (int)count;
}

/* Begins or continues a run of keys over a network. Returns the number of answered keys; negative:
 * as port_continue(). */
static int pull_go_on_fetched(struct lane_table *table, struct row_request *pull)
{
    struct row_span span;
    int error = pull->is_checked ? pull_read_span(table, pull, &span) : -EAGAIN;
    if (error < 0)
        return error;
    if (port_is_busy(pull)) {
        int count = port_continue(table, pull, &span);
        return count > 0 ? pull_end_run(table, pull, (uint32_t)count) : count;
    }
    if (!pull_may_go_on(table, pull, &span))
        return -EAGAIN;
    struct pull_run run = pull_next_run(table, pull, &span);
    return port_begin(table, pull, &span, run.count, run.is_last);
}

/* Returns whether there was work. The completion word of a complete pull was sent together with its
 * last rows. The connection of the worker may have ended in the meantime, so no other answer is
 * sent. */
static bool pull_try_fetched(struct lane_table *table, struct row_request *pull)
{
    int answered = pull_go_on_fetched(table, pull);
    if (answered == -EAGAIN)
        return false;
    if (answered < 0)
        request_evict(pull, answered);
    else if (pull->entry == pull->record->spans)
        table_drop_request(table, pull);
    return true;
}

bool pull_has_begun(const struct row_request *pull)
{
    bool has_run = !request_is_mapped(pull) && request_port(pull)->pull == pull;
    return pull->is_checked && (pull->entry > 0 || pull->key > 0 || has_run);
}

/* Returns whether there was work. If pages of a worker cannot be read, the worker gets no word,
 * because its connection is about to end. */
static bool pull_try(struct lane_table *table, struct row_request *pull)
{
    if (bulk_stops_pull(table, pull_has_begun(pull)))
        return false;
    if (!request_is_mapped(pull))
        return pull_try_fetched(table, pull);
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
