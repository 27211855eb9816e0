/* Events of fabrics, as a lane takes them. */
#ifndef GRADPOOL_AGGREGATOR_LANE_EVENTS_H
#define GRADPOOL_AGGREGATOR_LANE_EVENTS_H

#include "svc/aggregator/lane_types.h"

void lane_handle(struct lane *lane, struct fabric *fabric, const struct fabric_event *event);

#endif
