/* The number of open lanes, and numbers for future lanes of aggregators that do not run yet. Owns
 * no state. */
#include "svc/coordinator/fleet/open_lanes.h"

#include "svc/coordinator/service.h"

#define SLOT_FIRST UINT32_C(0x80000000) /* larger than the number of any existing lane */
#define SLOT_LANES_MAX 4096

/* Returns whether the aggregator is lost or about to end. The lanes of such an aggregator are not
 * counted. */
static bool is_no_more(const struct aggregator *a)
{
    return a->state == AGGREGATOR_LOST || a->is_stopping;
}

/* Returns the number of open and closing lanes of all aggregators that are neither lost nor
 * ending. */
static size_t open_now(const struct service *s)
{
    size_t open = 0;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count && !is_no_more(a); i++)
            open += a->lanes[i].use == LANE_OPEN || a->lanes[i].use == LANE_CLOSING;
    }
    return open;
}

size_t lanes_open(const struct service *s)
{
    size_t open = open_now(s);
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        open += fleet_is_coming(&s->fleet->slots[i]) ? s->fleet->slots[i].open_count : 0;
    return open;
}

static size_t room_beside(const struct service *s, size_t open)
{
    size_t most = s->options->lanes_max;
    if (most == 0)
        return SIZE_MAX;
    return most > open ? most - open : 0;
}

size_t lanes_room(const struct service *s) { return room_beside(s, lanes_open(s)); }

size_t lanes_room_now(const struct service *s) { return room_beside(s, open_now(s)); }

void lane_open(struct lane *lane)
{
    if (lane->use == LANE_PARKED || lane->use == LANE_CLOSING)
        lane->use = LANE_OPEN;
}

uint32_t slot_aggregator(const struct slot *slot) { return SLOT_FIRST + slot->number; }

uint32_t slot_lane(const struct slot *slot, uint32_t index)
{
    return SLOT_FIRST + slot->number * SLOT_LANES_MAX + index;
}

struct slot *slot_of_lane(struct service *s, uint32_t lane)
{
    uint32_t number = lane >= SLOT_FIRST ? (lane - SLOT_FIRST) / SLOT_LANES_MAX : 0;
    return number >= 1 && number <= s->fleet->slots_count ? &s->fleet->slots[number - 1] : NULL;
}
