/* Lookup of lanes and aggregators by number, and their names. */
#ifndef GRADPOOL_COORDINATOR_AGGREGATOR_LANE_H
#define GRADPOOL_COORDINATOR_AGGREGATOR_LANE_H

#include "svc/coordinator/aggregator/aggregator.h"

struct aggregator *aggregator_find(struct service *s, uint32_t id);
struct lane *lane_find(struct service *s, uint32_t id);
const char *lane_use_name(enum lane_use use);
/* Writes a name such as "aggregator 2 (node7, pid 4242)" and returns the buffer.
 * AGGREGATOR_NAME_BYTES are enough. */
const char *aggregator_name(const struct aggregator *a, char *buffer, size_t buffer_bytes);
/* Like aggregator_name(), with a buffer that is valid until the end of the block. */
#define AGGREGATOR_NAME(a) \
    aggregator_name(a, (char[AGGREGATOR_NAME_BYTES]){0}, AGGREGATOR_NAME_BYTES)

#endif
