/* Memory for the reads and writes of rows over a network, and handlers for the completion of these
 * reads and writes. RULES.md: A99. */
#ifndef GRADPOOL_LANE_ROWS_NETWORK_H
#define GRADPOOL_LANE_ROWS_NETWORK_H

#include "svc/lane/rows/types.h"

/* Allocates, for a worker that is or will be connected over this fabric, all memory that requests
 * of its rank need. Has no effect for mapped memory, for a replica holder, and in a job without
 * tables. Returns 0, or an error after which the job has failed. */
int network_open(const struct worker *w, const struct fabric *fabric);
/* Frees all network memory of the job's tables. If the lane has closed its fabrics before
 * (fabrics_count 0), the function calls no fabric. */
void network_close(struct lane_tables *tables);

/* Allocate and free memory that reads and writes over a network use. */
int network_alloc(struct lane_tables *tables, size_t bytes, void **ret_memory);
void network_free(struct lane_tables *tables, void *memory, size_t bytes);

/* Returns whether the request's memory is mapped; otherwise the rank has a port. */
static inline bool request_is_mapped(const struct row_request *request)
{
    return fabric_maps(request->worker->fabric);
}
static inline struct row_port *request_port(const struct row_request *request)
{
    return &request->worker->job->tables->network->ports[request->worker->number];
}
/* Returns the length of row_port.slot. */
size_t port_slot_bytes(const struct lane_job *job);

/* Post a read of the worker's memory, or a write that ends with `word` (NULL: without a word).
 * Return -EAGAIN: the operation is posted, or is not posted yet and the call has to be repeated;
 * -EFAULT: the worker does not lend the memory. */
int network_read(struct row_fetch *fetch, const struct worker *w, uint32_t region, uint64_t offset,
                 void *local, size_t bytes);
int network_write(struct row_fetch *fetch, const struct worker *w, uint32_t region, uint64_t offset,
                  const void *local, size_t bytes, const uint32_t *word);
/* Makes network_progress() ignore the result of an operation. The local memory of the operation
 * stays in use until its end. */
void network_abort(struct row_fetch *fetch);
/* Returns whether a read of a window of keys is in progress. The next shard waits for the end of
 * this read, because the windows of the next shard use the same memory. */
bool network_reads_windows(const struct lane_tables *tables);
/* Aborts the operations of a worker whose requests are dropped. */
void network_forget(struct lane_tables *tables, const struct worker *w);

/* Stores the result of an operation that has ended, and wakes the job. Returns false if no table
 * has posted the operation. */
bool network_progress(struct lane_job *job, void *context, int error);

#endif
