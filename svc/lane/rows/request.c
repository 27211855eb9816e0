/* Maps the memory of requests, and answers requests. Counts, offsets and regions come from a peer,
 * so fabric_map() compares them with the lent memory at every use. RULES.md: A4, A7. */
#include "svc/lane/rows/request.h"

#include "svc/lane/job/failure.h"
#include "svc/lane/job/tell.h"
#include "svc/lane/rows/log/row_log.h"
#include "svc/lane/rows/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

int request_map_directory(const struct lane_table *table, const struct row_request *request,
                          struct row_directory *ret_directory)
{
    const struct record_rows *r = request->record;
    const void *entries = fabric_map(request->worker->conn, r->directory_region,
                                     r->directory_offset, r->spans * sizeof(struct row_span));
    if (!entries)
        return -EFAULT;
    *ret_directory = (struct row_directory){
        .entries = entries, .spans = r->spans, .keys = r->keys, .shards = table->terms->shards};
    return 0;
}

const void *request_map_keys(const struct row_request *request, uint32_t first, uint32_t count)
{
    const struct record_rows *r = request->record;
    return fabric_map(request->worker->conn, r->keys_region,
                      r->keys_offset + first * sizeof(uint64_t), count * sizeof(uint64_t));
}

char *request_map_rows(const struct lane_table *table, const struct row_request *request,
                       uint32_t first, uint32_t count)
{
    const struct record_rows *r = request->record;
    return fabric_map(request->worker->conn, r->rows_region,
                      r->rows_offset + first * table->wire_bytes, count * table->wire_bytes);
}

void request_evict(const struct row_request *request, int error)
{
    job_evict(
        request->worker,
        error == -EFAULT
            ? "a request lies in memory that the worker does not lend; use one version of gradpool"
            : "keys or a directory changed after the request; use one version of gradpool");
}

void request_end(struct lane_table *table, struct row_request *request)
{
    list_remove(&request->link);
    list_append(&table->queues->done, &request->link);
    request->logged = row_log_end(table->job->tables);
}

static void request_error_text(const struct lane_table *table, const struct row_request *request,
                               char *text, size_t text_bytes)
{
    if (request->error == -EDOM)
        snprintf(text, text_bytes,
                 "table '%.16s': rows with NaN or infinity skipped: %u, first key %" PRIu64,
                 table->name, request->detail, request->first_key);
    else if (request->error == -EOWNERDEAD)
        snprintf(text, text_bytes,
                 "table '%.16s': a lost lane had answered this pull, and clock %" PRIu64
                 " is applied now; pull again",
                 table->name, request->record->clock);
    else
        snprintf(text, text_bytes, "table '%.32s': shard %u is not on this lane under this epoch",
                 table->name, request->detail);
}

static int request_answer(const struct lane_table *table, const struct row_request *request)
{
    struct worker *w = request->worker;
    char text[RECORD_TEXT_BYTES + 1];
    const struct lane_tables *tables = w->job->tables;
    if (request->error == 0)
        return fabric_notify(w->conn, request->record->word,
                             tables->network ? &tables->network->word : NULL);
    request_error_text(table, request, text, sizeof text);
    return tell_error_now(w, request->record->word, request->error, text);
}

bool requests_answer(struct lane_table *table)
{
    bool has_sent = false;
    list_for_each_safe_entry (struct row_request, request, &table->queues->done, link) {
        if (!row_log_may_answer(table->job->tables, request) ||
            request_answer(table, request) == -EAGAIN)
            continue; /* a later turn answers, after the event ROOM or when the log has landed */
        table_drop_request(table, request);
        has_sent = true;
    }
    return has_sent;
}
