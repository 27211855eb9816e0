/* Functions that map the memory of a request in the worker, and that end a request. Pointers into a
 * worker's memory are valid within one turn (A7). */
#ifndef GRADPOOL_LANE_ROWS_REQUEST_H
#define GRADPOOL_LANE_ROWS_REQUEST_H

#include "svc/lane/rows/types.h"

/* Maps the directory of the request. -EFAULT: the worker does not lend the memory. */
int request_map_directory(const struct lane_table *table, const struct row_request *request,
                          struct row_directory *ret_directory);
/* Map `count` keys or rows of the request, from `first` on. NULL: the worker does not lend the
 * memory. */
const void *request_map_keys(const struct row_request *request, uint32_t first, uint32_t count);
char *request_map_rows(const struct lane_table *table, const struct row_request *request,
                       uint32_t first, uint32_t count);
/* Fails the job because the worker of the request has broken the protocol, and disconnects the
 * worker. -EFAULT: the memory of the request is not lent; -EBADMSG: keys or directory are wrong. */
void request_evict(const struct row_request *request, int error);
/* Ends the request: the next requests_answer() sends its word or its error. */
void request_end(struct lane_table *table, struct row_request *request);
/* Sends the answers of ended requests, as far as the send queues have room. Returns whether an
 * answer was sent. */
bool requests_answer(struct lane_table *table);

#endif
