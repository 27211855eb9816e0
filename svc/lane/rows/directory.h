/* Directories of requests. A mapped directory is read in place; over a network, ROW_SPANS entries
 * are copied at a time. Entries are compared with the request and the table at every use, because
 * they come from a peer. RULES.md: A4, A99. */
#ifndef GRADPOOL_LANE_ROWS_DIRECTORY_H
#define GRADPOOL_LANE_ROWS_DIRECTORY_H

#include "svc/lane/rows/types.h"

#define DIRECTORY_FAULT "a request has an invalid directory; use one version of gradpool"

/* Compares the shards and epochs of the entries with those of the lane, and sets
 * request->is_checked. -EAGAIN: entries have not arrived yet, so the call has to be repeated.
 * -ESTALE: a shard is on another lane or under another epoch; -EBADMSG: entries are invalid or out
 * of order; -EFAULT: the worker does not lend the memory. */
int directory_check(const struct lane_table *table, struct row_request *request);
/* Checks the requests over a network whose entries have arrived. Requests with a stale route end
 * with an error; after another error the worker is evicted. Returns whether there was work. */
bool directories_work(struct lane_tables *tables);
/* Reads an entry. -EAGAIN, -EBADMSG, -EFAULT: as directory_check(). */
int directory_entry(const struct lane_table *table, struct row_request *request, uint32_t index,
                    struct row_span *ret_span);
/* Returns whether the entry of a request over a network is copied, so that directory_entry() reads
 * nothing. */
bool directory_is_copied(const struct row_request *request, uint32_t index);
/* Finds the entry of a shard. For a push, the shards of successive calls must ascend. -ENOENT: the
 * directory has no such entry; other errors: as directory_check(). */
int directory_find(const struct lane_table *table, struct row_request *request, uint32_t shard,
                   struct row_span *ret_span);

#endif
