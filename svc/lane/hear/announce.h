/* READY and QUERY of workers. */
#ifndef GRADPOOL_LANE_HEAR_ANNOUNCE_H
#define GRADPOOL_LANE_HEAR_ANNOUNCE_H

#include "svc/lane/types.h"

/* `data`: the receive buffer, `payload` in it or NULL. Returns whether the buffer is kept. */
bool announce(struct worker *w, const struct record_ready *ready, const void *data,
              const void *payload);
void answer_query(struct worker *w, const struct record_query *query);

#endif
