/* READY and QUERY records of workers. */
#ifndef GRADPOOL_LANE_HEAR_ANNOUNCE_H
#define GRADPOOL_LANE_HEAR_ANNOUNCE_H

#include "svc/lane/types.h"

/* Handles a READY. `data`: the receive buffer, which contains `payload` (or NULL). Returns true if
 * the lane keeps the buffer (worker.held). */
bool announce(struct worker *w, const struct record_ready *ready, const void *data,
              const void *payload);
void answer_query(struct worker *w, const struct record_query *query);

#endif
