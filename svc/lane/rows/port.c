/* Runs of pulls over a network. Each rank has its own run, at most one at a time, so a rank whose
 * memory does not respond does not delay other ranks. RULES.md: A99. */
#include "svc/lane/rows/port.h"

#include "svc/lane/rows/directory.h"
#include "svc/lane/rows/gather.h"
#include "svc/lane/rows/network.h"
#include "svc/lane/rows/table.h"

#include <errno.h>

uint32_t port_keys_max(const struct lane_table *table)
{
    return (uint32_t)(port_slot_bytes(table->job) / (sizeof(uint64_t) + table->wire_bytes));
}

static char *port_rows(const struct lane_table *table, const struct row_port *port)
{
    return port->slot + port_keys_max(table) * sizeof(uint64_t);
}

bool port_is_busy(const struct row_request *pull)
{
    const struct row_port *port = request_port(pull);
    return port->stage != PORT_FREE || port->fetch.state == FETCH_POSTED;
}

int port_begin(const struct lane_table *table, struct row_request *pull,
               const struct row_span *span, uint32_t count, bool is_last)
{
    struct row_port *port = request_port(pull);
    const struct record_rows *r = pull->record;
    uint64_t first = span->first + pull->key;
    port->count = count;
    port->is_last = is_last;
    int error = network_read(&port->fetch, pull->worker, r->keys_region,
                             r->keys_offset + first * sizeof(uint64_t), port->slot,
                             port->count * sizeof(uint64_t));
    if (port->fetch.state != FETCH_POSTED)
        return error;
    port->pull = pull;
    port->stage = PORT_READS_KEYS;
    return error;
}

/* Gathers the rows of the run entry by entry. All entries of the run are copied already. */
static int port_gather(const struct lane_table *table, struct row_port *port)
{
    const uint64_t *keys = (const uint64_t *)(const void *)port->slot;
    char *rows = port_rows(table, port);
    uint32_t entry = port->pull->entry, key = port->pull->key, count;
    int error = 0;
    for (uint32_t done = 0; error == 0 && done < port->count; done += count, entry++, key = 0) {
        struct row_span span;
        error = directory_entry(table, port->pull, entry, &span);
        if (error < 0)
            break;
        count = span.count - key;
        if (count > port->count - done)
            count = port->count - done;
        error = gather_rows(table, table_shard_at(table, span.shard), keys + done, count,
                            rows + done * table->wire_bytes);
    }
    port->fetch.state = FETCH_IDLE;
    port->stage = PORT_WRITES_ROWS;
    return error;
}

static int port_write(const struct lane_table *table, struct row_port *port,
                      const struct row_span *span)
{
    const struct row_request *pull = port->pull;
    const struct record_rows *r = pull->record;
    uint64_t first = span->first + pull->key;
    return network_write(&port->fetch, pull->worker, r->rows_region,
                         r->rows_offset + first * table->wire_bytes, port_rows(table, port),
                         port->count * table->wire_bytes, port->is_last ? &r->word : NULL);
}

int port_continue(const struct lane_table *table, struct row_request *pull,
                  const struct row_span *span)
{
    struct row_port *port = request_port(pull);
    bool is_done = port->fetch.state == FETCH_DONE;
    int error = 0;
    if (port->pull != pull || (!is_done && port->fetch.state != FETCH_IDLE))
        return -EAGAIN;
    if (port->stage == PORT_WRITES_ROWS && is_done) {
        port->fetch.state = FETCH_IDLE;
        port->stage = PORT_FREE;
        port->pull = NULL;
        return (int)port->count;
    }
    if (port->stage == PORT_READS_KEYS)
        error = port_gather(table, port);
    return error ? error : port_write(table, port, span);
}
