/* Writes the log of changed rows. If the ring is mapped, blocks are made in the ring. Over a
 * network, blocks are made in a second ring on this lane, and one write at a time copies them to
 * the replica lane. RULES.md: A128, A129. */
#include "svc/lane/rows/log/row_log.h"

#include "svc/lane/job/table.h"
#include "svc/lane/lane.h"
#include "svc/lane/rows/log/row_state.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/table.h"
#include "svc/lane/turn/policy.h"

#include <errno.h>
#include <string.h>

/* The owner reports landed blocks only after this number of bytes, because each report wakes the
 * process of the replica lane. */
#define LOG_TOLD_BYTES (UINT64_C(1) << 20)

static bool log_is_on(const struct row_log *log)
{
    return log && log->state >= ROW_LOG_COPYING && log->state <= ROW_LOG_WHOLE;
}

/* ---- begin and end ---- */

/* Keeps `staging` until row_log_free(), because a write that is in progress still reads this
 * memory. */
static void log_reset(struct row_log *log, enum row_log_state state)
{
    network_abort(&log->write);
    log->state = state;
    log->worker = NULL;
    log->table = NULL;
    log->shard = 0;
    log->next = log->whole_at = 0;
    log->open_bytes = 0;
    log->posted = log->landed = log->told = 0;
    log_writer_init(&log->writer, log->copy);
}

static void log_make_due(struct lane_tables *tables)
{
    const struct lane_options *options = &tables->job->lane->options;
    tables->log->is_due = true;
    if (options->moving_news)
        options->moving_news(options->context);
}

void row_log_break(struct lane_tables *tables)
{
    struct row_log *log = tables->log;
    if (!log || log->state == ROW_LOG_OFF || log->state == ROW_LOG_BROKEN)
        return;
    log_reset(log, ROW_LOG_BROKEN);
    log_make_due(tables);
    job_wake(tables->job);
}

void row_log_forget(const struct worker *holder)
{
    struct lane_tables *tables = holder->job->tables;
    if (tables && tables->log && tables->log->worker == holder)
        row_log_break(tables);
}

/* Ends the wait of all pushes for an earlier log. The next turn sends their answers. */
static void log_release_words(struct lane_tables *tables)
{
    tables->log->holds_words = false;
    list_for_each_entry (struct lane_table, table, &tables->tables, link)
        list_for_each_entry (struct row_request, request, &table->queues->done, link)
            request->logged = 0;
    job_wake(tables->job);
}

static bool log_has_failed(const struct lane_log_spec *spec, uint32_t table)
{
    for (size_t i = 0; i < spec->failed_count; i++)
        if (spec->failed[i] == table)
            return true;
    return false;
}

static void log_leave_out(struct lane_tables *tables, const struct lane_log_spec *spec)
{
    list_for_each_entry (struct lane_table, table, &tables->tables, link)
        table->queues->logged.is_left_out = log_has_failed(spec, row_table_of(table->id));
}

int lane_begin_log(struct lane *lane, uint32_t job_id, const struct lane_log_spec *spec)
{
    struct lane_job *job = job_find(lane, job_id);
    struct lane_tables *tables = job ? job->tables : NULL;
    if (!tables)
        return -ENOENT;
    if (tables->log && tables->log->copy == spec->copy)
        return 0;
    int error = tables->log ? 0
                            : allowance_alloc(&tables->allowance, sizeof *tables->log,
                                              (void **)&tables->log);
    if (error < 0)
        return error;
    tables->log->holder = spec->holder;
    tables->log->copy = spec->copy;
    tables->log->is_due = false;
    log_reset(tables->log, ROW_LOG_AWAITED);
    log_leave_out(tables, spec);
    log_release_words(tables);
    return 0;
}

void lane_end_log(struct lane *lane, uint32_t job_id)
{
    struct lane_job *job = job_find(lane, job_id);
    struct lane_tables *tables = job ? job->tables : NULL;
    if (!tables || !tables->log)
        return;
    tables->log->holder = tables->log->copy = 0;
    tables->log->is_due = false;
    log_reset(tables->log, ROW_LOG_OFF);
    log_release_words(tables);
}

void row_log_free(struct lane_tables *tables)
{
    struct row_log *log = tables->log;
    if (log && log->staging)
        network_free(tables, log->staging, LOG_RING_BYTES);
    allowance_free(&tables->allowance, log, sizeof *log);
    tables->log = NULL;
}

void lane_each_log_report(struct lane *lane, bool again,
                          void (*each)(void *context, const struct lane_log_report *report),
                          void *context)
{
    list_for_each_entry (struct lane_job, job, &lane->jobs, link) {
        struct row_log *log = job->tables ? job->tables->log : NULL;
        bool is_final = log && (log->state == ROW_LOG_WHOLE || log->state == ROW_LOG_BROKEN);
        if (!is_final || job->failure || job->is_dropped || !(log->is_due || again))
            continue;
        log->is_due = false;
        each(context, &(struct lane_log_report){job->id, log->copy, log->state == ROW_LOG_WHOLE});
    }
}

/* ---- records of the holder ---- */

static int log_prepare_staging(struct lane_tables *tables, const struct worker *holder)
{
    struct row_log *log = tables->log;
    if (fabric_maps(holder->fabric) || log->staging)
        return 0;
    return network_alloc(tables, LOG_RING_BYTES, (void **)&log->staging);
}

static bool log_state_is_due(const struct lane_table *table)
{
    return table->queues->logged.is_state_due && !table->queues->logged.is_left_out;
}

static uint32_t log_count_tables(const struct lane_tables *tables)
{
    uint32_t count = 0;
    list_for_each (node, &tables->tables)
        count++;
    return count;
}

/* Returns the next table after `after` that the log contains, or the first one if `after` is NULL.
 * Returns NULL if no table follows. */
static struct lane_table *log_next_table(struct lane_tables *tables, const struct lane_table *after)
{
    struct list *node = after ? after->link.next : tables->tables.next;
    for (; node != &tables->tables; node = node->next) {
        struct lane_table *table = list_entry(node, struct lane_table, link);
        if (!table->queues->logged.is_left_out)
            return table;
    }
    return NULL;
}

static void log_begin_walk(struct lane_tables *tables)
{
    list_for_each_entry (struct lane_table, table, &tables->tables, link)
        table->queues->logged.is_walked = false;
    tables->log->tables_count = log_count_tables(tables);
    tables->log->table = log_next_table(tables, NULL);
    tables->log->state = ROW_LOG_COPYING;
    job_wake(tables->job);
}

const char *row_log_hear_ring(struct worker *holder, const struct record_ring *ring)
{
    struct lane_tables *tables = holder->job->tables;
    struct row_log *log = tables ? tables->log : NULL;
    uint64_t lent =
        ring->region < FABRIC_REGIONS_MAX ? fabric_region_bytes(holder->conn, ring->region) : 0;
    if (lent < LOG_RING_BYTES || ring->offset > lent - LOG_RING_BYTES)
        return "a ring outside the memory that the sender has lent";
    /* an offer of an earlier copy is ignored, because that copy has ended; the coordinator orders
     * its replica lane to drop it */
    if (!log || log->state != ROW_LOG_AWAITED || ring->copy != log->copy ||
        (holder->number & ~RECORD_HOLDER) != log->holder)
        return NULL;
    if (log_prepare_staging(tables, holder) < 0) {
        row_log_break(tables);
        return NULL;
    }
    log->worker = holder;
    log->region = ring->region;
    log->offset = ring->offset;
    log_begin_walk(tables);
    return NULL;
}

const char *row_log_hear_taken(struct worker *holder, const struct record_taken *taken)
{
    struct lane_tables *tables = holder->job->tables;
    struct row_log *log = tables ? tables->log : NULL;
    if (!log_is_on(log) || log->worker != holder || log->region != taken->region)
        return NULL; /* of an earlier copy */
    if (log_take(&log->writer, taken->position) < 0)
        return "a position of a log beyond its end";
    if (log->writer.taken > log->landed)
        /* applied blocks have landed; the write's completion follows */
        log->landed = log->writer.taken;
    if (log->state == ROW_LOG_ENDING && log->writer.taken >= log->whole_at) {
        log->state = ROW_LOG_WHOLE;
        log_make_due(tables);
    }
    job_wake(tables->job);
    return NULL;
}

bool row_log_progress(struct lane_job *job, const void *context, int error)
{
    struct lane_tables *tables = job->tables;
    struct row_log *log = tables ? tables->log : NULL;
    if (!log || context != &log->write)
        return false;
    bool was_aborted = log->write.is_aborted;
    log->write = (struct row_fetch){0};
    if (!was_aborted && error == 0 && log_is_on(log))
        log->landed = log->posted;
    else if (!was_aborted)
        row_log_break(tables);
    job_wake(job);
    return true;
}

/* ---- blocks ---- */

/* Returns the memory in which blocks are made. NULL: the holder no longer lends the ring. */
static char *log_ring(const struct row_log *log)
{
    if (log->staging && !fabric_maps(log->worker->fabric))
        return log->staging;
    return fabric_map(log->worker->conn, log->region, log->offset, LOG_RING_BYTES);
}

/* Begins a block, after the caller has checked that the ring has room. Returns NULL after a fault,
 * which has ended the log. */
static char *log_begin_block(struct lane_tables *tables, size_t bytes)
{
    char *ring = log_ring(tables->log);
    char *payload = ring ? log_open(&tables->log->writer, ring, bytes) : NULL;
    if (!payload)
        row_log_break(tables);
    return payload;
}

static void log_end_block(struct row_log *log, const struct log_head *head, size_t bytes)
{
    char *ring = log_ring(log);
    log_seal(&log->writer, ring, head, bytes);
    if (ring != log->staging)
        log->posted = log->landed = log->writer.end;
}

static struct log_head log_progress(const struct lane_table *table)
{
    const struct row_apply *apply = table->job->tables->apply;
    const struct lane_shard *shard = table_shard_at(table, table->shard);
    bool is_midst = apply->table == table && shard;
    struct log_head head = {.table = table->id, .at_shard = table->shard};
    /* with BSP, the former owner of a promoted shard may have applied the clock up to this key */
    head.next = shard && (is_midst || table_is_bsp(table)) ? shard->progress.next : 0;
    if (table_is_bsp(table)) {
        head.clock = table->clock;
    } else if (table->shard > 0 || is_midst) {
        const struct row_request *push =
            list_entry(list_first(&table->queues->pushes), struct row_request, link);
        head.rank = push->worker->number;
        head.clock = push->record->sequence;
    }
    return head;
}

uint64_t row_log_end(const struct lane_tables *tables)
{
    return log_is_on(tables->log) ? tables->log->writer.end : 0;
}

bool row_log_may_answer(const struct lane_tables *tables, const struct row_request *request)
{
    const struct row_log *log = tables->log;
    if (!log || !log->holds_words || request->record->operation != RECORD_PUSH)
        return true;
    return log_is_on(log) && request->logged <= log->landed;
}

bool row_log_may_update(const struct lane_tables *tables)
{
    const struct row_log *log = tables->log;
    if (!log_is_on(log))
        return true;
    list_for_each_entry (const struct lane_table, table, &tables->tables, link)
        if (log_state_is_due(table) && log->state != ROW_LOG_COPYING)
            return false;
    return log_has_room(&log->writer, LOG_PAYLOAD_BYTES_MAX);
}

void row_log_states_changed(struct lane_tables *tables)
{
    list_for_each_entry (struct lane_table, table, &tables->tables, link)
        table->queues->logged.is_state_due = true;
    job_wake(tables->job);
}

/* Returns how many keys from `first` on the copy has passed. The log has to contain the changes of
 * these keys. All later keys will be copied together with their changes. */
static uint32_t log_passed(const struct lane_table *table, uint32_t shard,
                           const struct stripe *stripe, uint32_t first, uint32_t end)
{
    const struct row_log *log = table->job->tables->log;
    uint32_t count = 0;
    if (table->queues->logged.is_left_out)
        return 0;
    if (log->state != ROW_LOG_COPYING || table->queues->logged.is_walked || !log->table)
        return end - first;
    if (table != log->table || shard > log->shard)
        return 0;
    if (shard < log->shard)
        return end - first;
    while (first + count < end && stripe->keys[first + count] < log->next)
        count++;
    return count;
}

void row_log_rows(const struct row_apply *apply, uint32_t first)
{
    const struct lane_table *table = apply->table;
    struct lane_tables *tables = table->job->tables;
    const struct stripe *stripe = apply->stripe;
    const struct table_rows *rows = &table->shards[table->shard]->store->rows;
    uint32_t count =
        log_is_on(tables->log) ? log_passed(table, table->shard, stripe, first, apply->at) : 0;
    char *payload = count > 0 ? log_begin_block(tables, (size_t)count * rows->row_bytes) : NULL;
    if (!payload)
        return;
    for (uint32_t i = 0; i < count; i++, payload += rows->row_bytes)
        memcpy(payload, rows_at(rows, stripe->rows[first + i]), rows->row_bytes);
    tables->log->open_bytes = count * rows->row_bytes;
}

void row_log_close(const struct lane_table *table, uint32_t shard)
{
    struct row_log *log = table->job->tables->log;
    if (!log || log->open_bytes == 0)
        return;
    struct log_head head = log_progress(table);
    head.kind = LOG_ROWS;
    head.shard = shard;
    log_end_block(log, &head, log->open_bytes);
    log->open_bytes = 0;
}

static void log_write_state(struct lane_table *table)
{
    struct lane_tables *tables = table->job->tables;
    struct log_head head = log_progress(table);
    char *payload = log_begin_block(tables, row_state_bytes_max(table));
    if (!payload)
        return;
    head.kind = LOG_STATE;
    log_end_block(tables->log, &head, row_state_write(table, &head, payload));
    table->queues->logged.is_state_due = false;
}

/* ---- the copy ---- */

static bool log_awaits_import(const struct lane_tables *tables)
{
    list_for_each_entry (const struct lane_table, table, &tables->tables, link)
        if (table->hold->is_on && table->hold->loads)
            return true;
    return false;
}

/* Returns whether a push is open that a former owner has applied in part. The copy is completed
 * only after this push: a block describes the progress of one push, which is the push that is
 * applied now. */
static bool log_awaits_resumed(const struct lane_tables *tables)
{
    list_for_each_entry (const struct lane_table, table, &tables->tables, link)
        if (!table_is_bsp(table) && table->queues->logged.progress.sequence > 0 &&
            !table->queues->logged.is_left_out)
            return true;
    return false;
}

static void log_next_shard(struct row_log *log)
{
    struct lane_table *table = log->table;
    log->next = 0;
    if (++log->shard < table->terms->shards)
        return;
    log->shard = 0;
    table->queues->logged.is_walked = true;
    log->table = log_next_table(table->job->tables, table);
}

/* Copies rows of one shard to the log, one block at most. */
static void log_copy_rows(struct lane_tables *tables)
{
    struct row_log *log = tables->log;
    const struct lane_shard *shard = log->table->shards[log->shard];
    struct log_head head = {.kind = LOG_COPY, .table = log->table->id, .shard = log->shard};
    bool is_end = true;
    if (shard) {
        char *payload = log_begin_block(tables, LOG_PAYLOAD_BYTES_MAX);
        if (!payload)
            return;
        size_t bytes =
            log_walk(shard->store, log->next, payload, LOG_PAYLOAD_BYTES_MAX, &log->next, &is_end);
        log_end_block(log, &head, bytes);
    }
    if (is_end)
        log_next_shard(log);
}

/* Writes the state of one table whose state has changed since it was last written. Returns false if
 * there is no such table. */
static bool log_write_due_state(struct lane_tables *tables)
{
    list_for_each_entry (struct lane_table, table, &tables->tables, link) {
        if (!log_state_is_due(table))
            continue;
        log_write_state(table);
        return true;
    }
    return false;
}

static void log_complete(struct lane_tables *tables)
{
    struct row_log *log = tables->log;
    const struct log_head head = {.kind = LOG_WHOLE};
    if (!log_begin_block(tables, 0))
        return;
    log_end_block(log, &head, 0);
    log->whole_at = log->writer.end;
    log->state = ROW_LOG_ENDING;
    log->holds_words = true;
}

static bool log_copy(struct lane_tables *tables)
{
    struct row_log *log = tables->log;
    if (log_awaits_import(tables))
        return false;
    if (log->table) {
        log_copy_rows(tables);
        if (log_is_on(log) && !log->table)
            row_log_states_changed(tables);
    } else if (!log_write_due_state(tables)) {
        if (log_awaits_resumed(tables))
            return false;
        log_complete(tables);
    }
    return true;
}

/* ---- transfer ---- */

/* Posts a write of the blocks that were not posted yet, up to the end of the ring. Has no effect
 * while a write is in progress. */
static void log_post(struct lane_tables *tables)
{
    struct row_log *log = tables->log;
    uint64_t at = log->posted % LOG_RING_BYTES, bytes = log->writer.end - log->posted;
    if (bytes == 0 || log->write.state != FETCH_IDLE)
        return;
    if (bytes > LOG_RING_BYTES - at)
        bytes = LOG_RING_BYTES - at;
    int error = network_write(&log->write, log->worker, log->region, log->offset + at,
                              log->staging + at, bytes, NULL);
    if (log->write.state == FETCH_POSTED)
        log->posted += bytes;
    else if (error != -EAGAIN)
        row_log_break(tables);
}

static bool log_tell(struct row_log *log)
{
    uint64_t untold = log->landed - log->told;
    bool is_due = untold >= LOG_TOLD_BYTES || (untold > 0 && log->state == ROW_LOG_ENDING);
    const struct record_logged record = {
        .kind = RECORD_LOGGED, .copy = log->copy, .position = log->landed};
    if (!is_due || fabric_send(log->worker->conn, &record, sizeof record, NULL, 0) < 0)
        return false; /* if the send queue is full, the event ROOM starts another attempt */
    log->told = log->landed;
    return true;
}

bool row_log_work(struct lane_tables *tables)
{
    struct row_log *log = tables->log;
    bool has_work = false;
    /* a table was placed or promoted after the begin of the log, and the replica lane has no place
     * for this table */
    if (log_is_on(log) && log->tables_count != log_count_tables(tables))
        row_log_break(tables);
    if (!log_is_on(log))
        return false;
    if (log_has_room(&log->writer, LOG_PAYLOAD_BYTES_MAX))
        has_work = log->state == ROW_LOG_COPYING ? log_copy(tables) : log_write_due_state(tables);
    if (log_is_on(log))
        log_post(tables);
    return log_is_on(log) ? log_tell(log) || has_work : has_work;
}
