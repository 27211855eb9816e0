/* Handlers for the records of workers about tables: requests, clocks, settings, queries. */
#ifndef GRADPOOL_LANE_ROWS_HEAR_H
#define GRADPOOL_LANE_ROWS_HEAR_H

#include "svc/lane/rows/types.h"

/* Check a record, and store its content in the job's tables. Return NULL, or the reason for which
 * the caller disconnects the worker. */
const char *rows_hear_request(struct worker *w, const struct record_rows *record);
const char *rows_hear_clock(struct worker *w, const struct record_clock *record);
/* Answers with the ranks that have not reached the clock query->round of table query->piece. A
 * query about an unknown table gets no answer. */
void rows_answer_query(struct worker *w, const struct record_query *query);

#endif
