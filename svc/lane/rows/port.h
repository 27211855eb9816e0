/* Answers pulls over a network, run by run: reads keys into the rank's slot, gathers their rows
 * behind them, and writes the rows. RULES.md: A99. */
#ifndef GRADPOOL_LANE_ROWS_PORT_H
#define GRADPOOL_LANE_ROWS_PORT_H

#include "svc/lane/rows/types.h"

/* Returns whether the port of the pull's rank has a run of keys, of this or another pull. */
bool port_is_busy(const struct row_request *pull);
/* Returns the maximum number of keys of a run. */
uint32_t port_keys_max(const struct lane_table *table);
/* Begins a run of `count` keys, at most port_keys_max(): the next keys of the entry `span`, and of
 * entries behind it whose keys follow without a gap. `is_last`: the request has no keys after the
 * run. -EAGAIN: the run has begun, or the send queue is full and the call has to be repeated;
 * -EFAULT: the worker does not lend the memory. */
int port_begin(const struct lane_table *table, struct row_request *pull,
               const struct row_span *span, uint32_t count, bool is_last);
/* Continues the run of this pull; `span` is its first entry. Returns the number of keys whose rows
 * have arrived in the worker's memory; the completion word is sent with the last rows of the
 * request. -EAGAIN: an operation is in progress, or the run is of another pull; -EBADMSG, -EFAULT:
 * the worker breaks the protocol. */
int port_continue(const struct lane_table *table, struct row_request *pull,
                  const struct row_span *span);

#endif
