/* Events of a lane's fabrics. */
#ifndef GRADPOOL_LANE_EVENTS_H
#define GRADPOOL_LANE_EVENTS_H

#include "svc/lane/types.h"

void lane_handle(struct lane *lane, struct fabric *fabric, const struct fabric_event *event);

#endif
