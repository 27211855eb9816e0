/* The reason why a pull or a push of a table is not over. Called with the job's lock held. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_ROW_STALL_H
#define GRADPOOL_CLIENT_LIB_ROUND_ROW_STALL_H

#include "client/lib/job/request.h"

/* Returns -EDEADLK, with a text, if the request is a push of a clock that this rank has not ended;
 * otherwise 0. */
int row_stall_is_due(const struct gp_request *q);
/* Sends a query about the request's clock to one lane, and adds 1 to q->queries. */
void row_stall_query(struct gp_request *q);
/* Returns whether the answer has named ranks, which are then in q->missing. */
bool row_stall_names_ranks(const struct gp_request *q);
/* Returns -EDQUOT, with a text, if pushes of the job wait for table memory; otherwise 0. */
int row_stall_lacks(const struct gp_request *q, uint64_t timeout_ns);
/* Writes the reason to `text` (ERR_TEXT_BYTES). */
void row_stall_describe(const struct gp_request *q, char *text);

#endif
