/* Messages of lanes about rounds. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_SETTLE_H
#define GRADPOOL_CLIENT_LIB_ROUND_SETTLE_H

#include "svc/fabric/fabric.h"

/* An event of a connection, for the job's engine. With the job's lock. */
void settle_event(void *job, const struct fabric_event *event);

#endif
