/* Owns the memory for reads and writes over a network. The connection of a worker ends after all
 * its operations, so no operation of a job without connections is in progress. RULES.md: A3,
 * A99. */
#include "svc/lane/rows/network.h"

#include "svc/base/text.h"
#include "svc/lane/job/failure.h"
#include "svc/lane/turn/policy.h"

#include <errno.h>

/* Bytes of the slots of all ports of a job; minimum and maximum bytes of the slot of one port. */
#define PORTS_BYTES (16u << 20)
#define PORT_LEAST (32u << 10)
#define PORT_MOST (1u << 20)
#define NETWORK_BYTES (ROW_SLOTS * (size_t)ROW_SUMS_BYTES + AHEAD_BYTES)

size_t port_slot_bytes(const struct lane_job *job)
{
    size_t bytes = PORTS_BYTES / job->workers_count;
    bytes -= bytes % PORT_LEAST;
    if (bytes < PORT_LEAST)
        return PORT_LEAST;
    return bytes > PORT_MOST ? PORT_MOST : bytes;
}

/* ---- memory ---- */

static uint32_t network_requests(const struct lane_job *job)
{
    return job->workers_count * record_row_requests(job->workers_count);
}

static void network_unregister(const struct lane_tables *tables, void *memory, size_t fabrics)
{
    for (size_t i = 0; memory && i < fabrics; i++)
        fabric_pool_unregister(tables->job->lane->options.fabrics[i], memory);
}

static int network_register(const struct lane_tables *tables, void *memory, size_t bytes)
{
    const struct lane_options *options = &tables->job->lane->options;
    for (size_t i = 0; i < options->fabrics_count; i++) {
        int error = fabric_pool_register(options->fabrics[i], memory, bytes);
        if (error < 0) {
            network_unregister(tables, memory, i);
            return error;
        }
    }
    return 0;
}

int network_alloc(struct lane_tables *tables, size_t bytes, void **ret_memory)
{
    void *memory;
    int error = allowance_alloc(&tables->allowance, bytes, &memory);
    if (error < 0)
        return error;
    error = network_register(tables, memory, bytes);
    if (error < 0)
        allowance_free(&tables->allowance, memory, bytes);
    else
        *ret_memory = memory;
    return error;
}

void network_free(struct lane_tables *tables, void *memory, size_t bytes)
{
    network_unregister(tables, memory, tables->job->lane->options.fabrics_count);
    allowance_free(&tables->allowance, memory, bytes);
}

/* Fills in a new struct row_network. After an error network_close() frees what was allocated. */
static int network_fill(struct lane_tables *tables)
{
    struct lane_job *job = tables->job;
    struct row_network *n = tables->network;
    struct allowance *allowance = &tables->allowance;
    size_t windows = network_requests(job) * sizeof *n->windows;
    size_t ports = job->workers_count * sizeof *n->ports;
    int error = allowance_alloc(allowance, windows, (void **)&n->windows)
                    ?: allowance_alloc(allowance, ports, (void **)&n->ports)
                           ?: network_alloc(tables, NETWORK_BYTES, (void **)&n->memory);
    for (size_t i = 0; error == 0 && i < ROW_SLOTS; i++)
        n->slots[i].memory = n->memory + i * ROW_SUMS_BYTES;
    if (error == 0)
        n->ahead.memory = n->memory + ROW_SLOTS * (size_t)ROW_SUMS_BYTES;
    for (uint32_t i = 0; error == 0 && i < network_requests(job); i++)
        n->windows[i].is_window = true;
    return error ? error
                 : network_register(tables, tables->apply->windows,
                                    ROW_WINDOW_KEYS_ALL * sizeof *tables->apply->windows);
}

static int network_create(struct lane_tables *tables)
{
    if (tables->network)
        return 0;
    int error =
        allowance_alloc(&tables->allowance, sizeof *tables->network, (void **)&tables->network);
    if (error == 0)
        error = network_fill(tables);
    if (error < 0)
        network_close(tables);
    return error;
}

static size_t table_spans_bytes(const struct lane_table *table)
{
    return (size_t)network_requests(table->job) * ROW_SPANS * sizeof *table->spans;
}

static int table_open_spans(struct lane_table *table)
{
    if (table->spans)
        return 0;
    int error = network_alloc(table->job->tables, table_spans_bytes(table), (void **)&table->spans);
    for (uint32_t i = 0; error == 0 && i < network_requests(table->job); i++)
        table->queues->requests[i].spans = table->spans + (size_t)i * ROW_SPANS;
    return error;
}

static int network_open_all(struct lane_tables *tables, const struct worker *w)
{
    int error = network_create(tables);
    struct row_port *port = error == 0 ? &tables->network->ports[w->number] : NULL;
    if (port && !port->slot)
        error = network_alloc(tables, port_slot_bytes(w->job), (void **)&port->slot);
    list_for_each_entry (struct lane_table, table, &tables->tables, link)
        error = error ?: table_open_spans(table);
    return error;
}

int network_open(const struct worker *w, const struct fabric *fabric)
{
    struct lane_job *job = w->job;
    char each[32];
    if (!job->tables || worker_is_holder(w) || fabric_maps(fabric))
        return 0;
    int error = network_open_all(job->tables, w);
    if (error < 0)
        job_fail(
            job, error,
            "lane %u has no memory to exchange rows with rank %u over a network (%s and more); "
            "raise --lane-memory-max or --job-memory-max",
            job->lane->options.id, w->number, text_bytes(port_slot_bytes(job), each, sizeof each));
    return error;
}

void network_close(struct lane_tables *tables)
{
    struct lane_job *job = tables->job;
    struct row_network *n = tables->network;
    struct allowance *allowance = &tables->allowance;
    if (!n)
        return;
    list_for_each_entry (struct lane_table, table, &tables->tables, link) {
        network_free(tables, table->spans, table_spans_bytes(table));
        table->spans = NULL;
    }
    for (uint32_t i = 0; n->ports && i < job->workers_count; i++)
        network_free(tables, n->ports[i].slot, port_slot_bytes(job));
    network_free(tables, n->memory, NETWORK_BYTES);
    network_unregister(tables, tables->apply->windows, job->lane->options.fabrics_count);
    allowance_free(allowance, n->ports, job->workers_count * sizeof *n->ports);
    allowance_free(allowance, n->windows, network_requests(job) * sizeof *n->windows);
    allowance_free(allowance, n, sizeof *n);
    tables->network = NULL;
}

/* ---- operations ---- */

/* Stores whether the operation was posted. Returns -EAGAIN unless the error is final: the job is
 * woken later by the completion, by ROOM after -EAGAIN, or by CLOSED after -ECONNRESET. */
static int network_posted(struct row_fetch *fetch, int error)
{
    if (error == 0)
        fetch->state = FETCH_POSTED;
    return error == 0 || error == -ECONNRESET ? -EAGAIN : error;
}

int network_read(struct row_fetch *fetch, const struct worker *w, uint32_t region, uint64_t offset,
                 void *local, size_t bytes)
{
    int error = fabric_read(w->conn, region, offset, local, bytes, fetch);
    w->job->tables->network->windows_posted += error == 0 && fetch->is_window;
    return network_posted(fetch, error);
}

int network_write(struct row_fetch *fetch, const struct worker *w, uint32_t region, uint64_t offset,
                  const void *local, size_t bytes, const uint32_t *word)
{
    int error = word ? fabric_write_word(w->conn, region, offset, local, bytes, *word, fetch)
                     : fabric_write(w->conn, region, offset, local, bytes, fetch);
    return network_posted(fetch, error);
}

void network_abort(struct row_fetch *fetch)
{
    if (fetch->state == FETCH_POSTED)
        fetch->is_aborted = true;
    else
        fetch->state = FETCH_IDLE;
}

bool network_reads_windows(const struct lane_tables *tables)
{
    return tables->network && tables->network->windows_posted > 0;
}

void network_forget(struct lane_tables *tables, const struct worker *w)
{
    if (!tables->network)
        return;
    struct row_port *port = &tables->network->ports[w->number];
    network_abort(&port->directory);
    network_abort(&port->fetch);
    port->reader = port->pull = NULL;
    port->stage = PORT_FREE;
}

/* ---- ends ---- */

static bool network_is_within(const void *context, const void *base, size_t bytes)
{
    uintptr_t at = (uintptr_t)context, first = (uintptr_t)base;
    return at >= first && at - first < bytes;
}

/* Returns the operation of this context; NULL: no table has posted it. */
static struct row_fetch *network_fetch(struct lane_job *job, void *context)
{
    struct row_network *n = job->tables ? job->tables->network : NULL;
    bool is_ours =
        n && (network_is_within(context, n, sizeof *n) ||
              network_is_within(context, n->ports, job->workers_count * sizeof *n->ports) ||
              network_is_within(context, n->windows, network_requests(job) * sizeof *n->windows));
    return is_ours ? context : NULL;
}

static void network_end(struct row_network *n, struct row_fetch *fetch, int error)
{
    n->windows_posted -= fetch->is_window;
    if (fetch->is_aborted)
        fetch->state = FETCH_IDLE;
    else
        fetch->state = error ? FETCH_BROKEN : FETCH_DONE;
    fetch->is_aborted = false;
}

bool network_progress(struct lane_job *job, void *context, int error)
{
    struct row_fetch *fetch = network_fetch(job, context);
    if (!fetch)
        return false;
    if (fetch != &job->tables->network->word)
        network_end(job->tables->network, fetch, error);
    job_wake(job);
    return true;
}
