/* Reads directories of requests. RULES.md: A4, A99. */
#include "svc/lane/rows/directory.h"

#include "svc/lane/job/failure.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/request.h"
#include "svc/lane/rows/table.h"

#include <errno.h>

/* ---- copied entries ---- */

/* Assigns the entries of a complete read to their request. The port can then read the entries of
 * other requests. */
static void directory_take(struct row_port *port)
{
    if (port->directory.state != FETCH_DONE || !port->reader)
        return;
    struct row_request *reader = port->reader;
    uint32_t left = reader->record->spans - reader->spans_first;
    reader->spans_count = left < ROW_SPANS ? left : ROW_SPANS;
    port->reader = NULL;
    port->directory.state = FETCH_IDLE;
}

/* Posts a read of the entries from `index` on, ROW_SPANS at most. Returns -EAGAIN, or an error of
 * network_read(). */
static int directory_fetch(struct row_request *request, uint32_t index)
{
    struct row_port *port = request_port(request);
    const struct record_rows *r = request->record;
    uint32_t left = r->spans - index;
    uint32_t count = left < ROW_SPANS ? left : ROW_SPANS;
    if (port->directory.state != FETCH_IDLE)
        return -EAGAIN;
    request->spans_first = index;
    request->spans_count = 0;
    int error = network_read(&port->directory, request->worker, r->directory_region,
                             r->directory_offset + index * sizeof *request->spans, request->spans,
                             count * sizeof *request->spans);
    port->reader = port->directory.state == FETCH_POSTED ? request : NULL;
    return error;
}

bool directory_is_copied(const struct row_request *request, uint32_t index)
{
    return index - request->spans_first < request->spans_count;
}

static int directory_copied(const struct lane_table *table, struct row_request *request,
                            uint32_t index, struct row_span *ret_span)
{
    directory_take(request_port(request));
    if (!directory_is_copied(request, index))
        return directory_fetch(request, index);
    struct row_directory directory = {.entries = request->spans,
                                      .spans = request->spans_count,
                                      .keys = request->record->keys,
                                      .shards = table->terms->shards};
    return row_directory_read(&directory, index - request->spans_first, ret_span);
}

int directory_entry(const struct lane_table *table, struct row_request *request, uint32_t index,
                    struct row_span *ret_span)
{
    struct row_directory directory;
    if (!request_is_mapped(request))
        return directory_copied(table, request, index, ret_span);
    return request_map_directory(table, request, &directory)
               ?: row_directory_read(&directory, index, ret_span);
}

/* Begins at the entry at which the last search has ended, because shards are requested in ascending
 * order. */
static int directory_find_copied(const struct lane_table *table, struct row_request *request,
                                 uint32_t shard, struct row_span *ret_span)
{
    for (; request->entry < request->record->spans; request->entry++) {
        int error = directory_copied(table, request, request->entry, ret_span);
        if (error < 0)
            return error;
        if (ret_span->shard >= shard)
            return ret_span->shard == shard ? 0 : -ENOENT;
    }
    return -ENOENT;
}

int directory_find(const struct lane_table *table, struct row_request *request, uint32_t shard,
                   struct row_span *ret_span)
{
    struct row_directory directory;
    if (!request_is_mapped(request))
        return directory_find_copied(table, request, shard, ret_span);
    return request_map_directory(table, request, &directory)
               ?: row_directory_find(&directory, shard, ret_span);
}

/* ---- checks ---- */

static int directory_check_entry(const struct lane_table *table, struct row_request *request,
                                 const struct row_span *span)
{
    if (!row_span_follows(span, request->entry > 0 ? &request->before : NULL))
        return -EBADMSG;
    const struct lane_shard *shard = table_shard_at(table, span->shard);
    if (shard && shard->epoch == span->epoch)
        return 0;
    request->detail = span->shard;
    return -ESTALE;
}

int directory_check(const struct lane_table *table, struct row_request *request)
{
    struct row_span span = {0};
    int error = 0;
    while (request->entry < request->record->spans) {
        error = directory_entry(table, request, request->entry, &span)
                    ?: directory_check_entry(table, request, &span);
        if (error < 0)
            break;
        request->before = span;
        request->entry++;
    }
    if (error == -EAGAIN)
        return error;
    table->job->tables->unchecked -= !request_is_mapped(request);
    request->is_checked = true;
    request->entry = 0;
    return error;
}

/* Checks a request. Returns false if it was checked before, or if entries have not arrived yet. */
static bool directory_work(struct lane_table *table, struct row_request *request)
{
    int error = request->is_checked ? -EAGAIN : directory_check(table, request);
    if (error == -EAGAIN)
        return false;
    if (error == -ESTALE) {
        request->error = error;
        request_end(table, request);
    } else if (error < 0) {
        job_evict(request->worker, DIRECTORY_FAULT);
    }
    return true;
}

static bool directories_work_list(struct lane_table *table, struct list *requests)
{
    bool has_work = false;
    list_for_each_safe_entry (struct row_request, request, requests, link)
        has_work |= directory_work(table, request);
    return has_work;
}

bool directories_work(struct lane_tables *tables)
{
    bool has_work = false;
    if (tables->unchecked == 0)
        return false;
    list_for_each_entry (struct lane_table, table, &tables->tables, link) {
        has_work |= directories_work_list(table, &table->queues->pushes);
        has_work |= directories_work_list(table, &table->queues->pulls);
    }
    return has_work;
}
