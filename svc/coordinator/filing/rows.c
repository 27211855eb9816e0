/* Transfers rows between operator and lanes. At most one part of an export is in memory. The rows
 * of an import are divided among the shards of this table, which may have another number of shards
 * than the exported table. RULES.md: K115. */
#include "svc/reduce/rows/rows.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/filing/internal.h"
#include "svc/coordinator/table/allow.h"
#include "svc/reduce/reduce.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STANDS_NS (20 * NS_PER_S) /* longest hold by an operator's export */
#define PUT_BYTES_MAX (UINT64_C(1) << 20)

static bool filing_lane_has(const struct filing *f, size_t at, const struct job_shard *shard)
{
    const struct filing_lane *lane = &f->lanes[at];
    return lane->place == f->place && shard->lane && shard->lane->id == lane->lane &&
           shard->group == lane->group;
}

/* Returns the index of the entry for this shard of the present table. Returns f->lanes_count if the
 * shard has moved to another lane since the beginning of the export or import. */
static size_t filing_at(const struct filing *f, const struct job_shard *shard)
{
    size_t at = 0;
    while (at < f->lanes_count && !filing_lane_has(f, at, shard))
        at++;
    return at;
}

/* Returns the export or import to which a lane's reply belongs. Returns NULL if the reply belongs
 * to an earlier group of calls. An error ends the export or import, and returns NULL as well. */
static struct filing *filing_heard(struct service *s, const struct filing_asked *asked,
                                   const envelope *reply, int code, const char *text)
{
    struct filing *f = filing_of(s, asked);
    if (f && !reply)
        filing_break(f, code, "%s", text);
    else if (f && reply->body_case != BODY(TABLE_BULK_REPLY))
        filing_break(f, -EBADMSG,
                     "an aggregator sent a reply of another kind; use one version of gradpool");
    else
        return f;
    return NULL;
}

/* ---- export ---- */

static void filing_was_read(struct service *s, void *data, const envelope *reply, int code,
                            const char *text)
{
    struct filing *f = filing_heard(s, data, reply, code, text);
    if (!f)
        return;
    const WIRE(TableBulkReply) *part = reply->table_bulk_reply;
    f->shard += part->is_end;
    f->from = part->is_end ? 0 : part->next;
    if (part->rows.len == 0)
        return filing_read(f);
    filing_answer(f, MESSAGE_PART(TableFileReply, table_file_reply, .rows = part->rows));
    filing_await(f);
}

void filing_read(struct filing *f)
{
    const struct job_table *table = filing_table(f);
    if (!table || table->failure)
        return filing_break(f, -ECONNRESET, "the job has ended, or its table has failed");
    if (!f->is_between && clock_now_ns() - f->since_ns > STANDS_NS)
        return filing_break(f, -ETIMEDOUT,
                            "table '%s' of job %.64s was not read completely within %u s; the "
                            "export has failed, and the job continues: the reader or its disk is "
                            "slow, or the table is too large",
                            table->name, table->job->name, (unsigned)(STANDS_NS / NS_PER_S));
    if (f->shard == table->terms->shards) {
        f->shard = 0;
        f->place += f->place + 1 < f->tables->count;
        filing_answer(f, MESSAGE_PART(TableFileReply, table_file_reply, .is_end = true));
        return filing_await(f);
    }
    size_t at = filing_at(f, &table->shards[f->shard]);
    if (at == f->lanes_count) /* The shard's present lane was never ordered to hold the table. */
        return filing_break(f, -EAGAIN,
                            "table '%s' of job %.64s: an aggregator was lost during the export, "
                            "and shard %u is on another lane now; export again",
                            table->name, table->job->name, f->shard);
    WIRE(TableBulk) m = MESSAGE_PART(TableBulk, table_bulk, .shard = f->shard, .from = f->from);
    m.step = GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_READ;
    int error = filing_call(f, at, m, filing_was_read);
    if (error < 0)
        filing_break(f, error, "shard %u cannot be read: %s", f->shard, err_text(error));
}

/* ---- import ---- */

static size_t filing_row_bytes(const struct job_table *table)
{
    const struct table_terms *t = table->terms;
    return sizeof(uint64_t) + t->dim * reduce_element_bytes(t->dtype) +
           (size_t)row_moments(t->rule, t->dim) * sizeof(float);
}

/* Copies the rows for the lane of entry `at` to `ret_rows`. Returns the number of copied bytes. */
static size_t filing_gather(const struct filing *f, const struct job_table *table,
                            const ProtobufCBinaryData *rows, size_t at, uint8_t *ret_rows)
{
    size_t row_bytes = filing_row_bytes(table), bytes = 0;
    uint32_t shard_bits = (uint32_t)__builtin_ctz(table->terms->shards);
    if (f->lanes[at].place != f->place)
        return 0;
    for (size_t row = 0; row < rows->len; row += row_bytes) {
        uint64_t key;
        memcpy(&key, rows->data + row, sizeof key);
        uint32_t shard = mixed_key_shard(mixed_key(key, table->salt), shard_bits);
        if (!filing_lane_has(f, at, &table->shards[shard]))
            continue;
        memcpy(ret_rows + bytes, rows->data + row, row_bytes);
        bytes += row_bytes;
    }
    return bytes;
}

/* A part of an import. The part is kept until all lanes have stored its rows. `is_short`: the
 * allowance of a lane had no room, so the part is sent again. */
struct filing_part {
    bool is_short;
    size_t bytes;
    uint8_t rows[PUT_BYTES_MAX];
};

static void filing_write_part(struct filing *f);

/* Called when all lanes have answered. If an allowance had no room, the whole part is sent again;
 * rows that a lane has stored already are replaced by the same rows. */
static void filing_part_is_over(struct filing *f)
{
    if (f->part->is_short)
        return filing_write_part(f);
    filing_answer(f, MESSAGE_PART(TableFileReply, table_file_reply));
    filing_await(f);
}

/* Called when the allowance of a lane had no room for the rows. The lane has requested a larger
 * allowance before its answer, so the coordinator has granted or refused this already. After a
 * refusal the import ends; otherwise the part is sent again. */
static void filing_lacks_room(struct filing *f, const struct filing_asked *asked)
{
    const struct job_table *table = filing_table(f);
    const struct lane *lane = lane_find(f->peer->service, f->lanes[asked->at].lane);
    struct err err;
    if (table && lane && allow_is_refused(table->job, lane, &err))
        return filing_break(f, -EDQUOT, "%s", err.text);
    f->part->is_short = true;
    if (--f->pending == 0)
        filing_part_is_over(f);
}

static void filing_was_written(struct service *s, void *data, const envelope *reply, int code,
                               const char *text)
{
    if (code == -EAGAIN && filing_of(s, data))
        return filing_lacks_room(filing_of(s, data), data);
    struct filing *f = filing_heard(s, data, reply, code, text);
    if (f && --f->pending == 0)
        filing_part_is_over(f);
}

/* Sends to the lane of entry `at` the rows of its shards. Returns the number of bytes sent, or a
 * negative errno. */
static int64_t filing_write_lane(struct filing *f, const struct job_table *table,
                                 const ProtobufCBinaryData *rows, size_t at, uint8_t *buffer)
{
    WIRE(TableBulk) m = MESSAGE_PART(TableBulk, table_bulk);
    m.step = GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_WRITE;
    m.rows.data = buffer;
    m.rows.len = filing_gather(f, table, rows, at, buffer);
    int error = m.rows.len > 0 ? filing_call(f, at, m, filing_was_written) : 0;
    return error < 0 ? error : (int64_t)m.rows.len;
}

/* Sends each row to its lane. Returns -ENOENT if a row belongs to no lane; other rows may have been
 * sent before. */
static int filing_write_lanes(struct filing *f, const struct job_table *table,
                              const ProtobufCBinaryData *rows, uint8_t *buffer)
{
    size_t sent = 0;
    for (size_t at = 0; at < f->lanes_count; at++) {
        int64_t bytes = filing_write_lane(f, table, rows, at, buffer);
        if (bytes < 0)
            return (int)bytes;
        sent += (size_t)bytes;
    }
    return sent == rows->len ? 0 : -ENOENT;
}

static void filing_write_part(struct filing *f)
{
    const struct job_table *table = filing_table(f);
    if (!table || table->failure)
        return filing_break(f, -ECONNRESET, "the job has ended, or its table has failed");
    const ProtobufCBinaryData rows = {f->part->bytes, f->part->rows};
    f->part->is_short = false;
    uint8_t *buffer = malloc(rows.len);
    int error = buffer ? filing_write_lanes(f, table, &rows, buffer) : -ENOMEM;
    free(buffer);
    if (error < 0)
        filing_break(f, error, "rows of table '%s' cannot be sent to its lanes: %s", table->name,
                     err_text(error));
}

void filing_write(struct filing *f, const ProtobufCBinaryData *rows)
{
    const struct job_table *table = filing_table(f);
    if (!table || table->failure)
        return filing_break(f, -ECONNRESET, "the job has ended, or its table has failed");
    if (rows->len == 0 || rows->len > PUT_BYTES_MAX || rows->len % filing_row_bytes(table) != 0)
        return filing_break(f, -EBADMSG,
                            "table '%s' cannot take rows of %zu bytes; use one version of gradpool",
                            table->name, rows->len);
    f->part = f->part ? f->part : malloc(sizeof *f->part);
    if (!f->part)
        return filing_break(f, -ENOMEM,
                            "gradpool serve has no memory for rows of table '%s'; "
                            "raise its memory limit",
                            table->name);
    memcpy(f->part->rows, rows->data, rows->len);
    f->part->bytes = rows->len;
    filing_write_part(f);
}

/* ---- end ---- */

static void filing_has_ended(struct service *s, void *data, const envelope *reply, int code,
                             const char *text)
{
    struct filing *f = filing_heard(s, data, reply, code, text);
    if (!f || --f->pending > 0)
        return;
    const struct job_table *table = filing_table_at(f, 0);
    if (table)
        log_info("job %s: table '%s' was held at clock %llu for %.1f ms, for an %s of %u tables",
                 table->job->name, table->name, (unsigned long long)f->clock,
                 (double)(clock_now_ns() - f->since_ns) / NS_PER_MS,
                 f->is_import ? "import" : "export", f->tables->count);
    filing_answer(f, MESSAGE_PART(TableFileReply, table_file_reply));
    filing_free(f);
}

void filing_end(struct filing *f, const uint64_t *steps)
{
    int error = 0;
    for (size_t at = 0; error == 0 && at < f->lanes_count; at++) {
        uint32_t place = f->lanes[at].place;
        WIRE(TableBulk)
        m = MESSAGE_PART(TableBulk, table_bulk, .has_steps = f->is_import,
                         .steps = f->is_import ? steps[place] : 0,
                         .clock = f->is_import ? f->tables->each[place].clock : 0);
        m.step = GRADPOOL__WIRE__TABLE_BULK_STEP__TABLE_BULK_CONTINUE;
        error = filing_call(f, at, m, filing_has_ended);
    }
    if (error < 0)
        filing_break(f, error, "the order to continue cannot be sent to the lanes of the table: %s",
                     err_text(error));
}
