/* Lookup and names of lanes and aggregators. Owns nothing. */
#include "svc/coordinator/aggregator/lane.h"

#include "svc/coordinator/service.h"

#include <stdio.h>

const char *aggregator_name(const struct aggregator *a, char *buffer, size_t buffer_bytes)
{
    snprintf(buffer, buffer_bytes, "aggregator %u (%.64s, pid %u)", a->id, a->node, a->pid);
    return buffer;
}

const char *lane_use_name(enum lane_use use)
{
    static const char *const names[] = {"open", "closing", "parked", "withheld"};
    return names[use];
}

struct aggregator *aggregator_find(struct service *s, uint32_t id)
{
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        if (a->id == id)
            return a;
    return NULL;
}

struct lane *lane_find(struct service *s, uint32_t id)
{
    list_for_each_entry (struct aggregator, a, &s->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count; i++)
            if (a->lanes[i].id == id)
                return &a->lanes[i];
    }
    return NULL;
}
