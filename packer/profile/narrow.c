/* Owns the search for the smallest number of lanes of a job. Only a measurement shows that a number
 * of lanes is enough: no rule can predict how far the job's own computing hides the cost of fewer
 * lanes. RULES.md: R10. */
#include "packer/profile/narrow.h"

#define MILLION 1000000

void narrow_begin(struct narrow *narrow, uint32_t lanes)
{
    *narrow = (struct narrow){.enough = lanes};
}

uint32_t narrow_next(const struct narrow *narrow)
{
    return narrow->enough > narrow->few + 1 ? narrow->few + (narrow->enough - narrow->few) / 2 : 0;
}

static uint32_t cost_ppm(uint64_t alone_ns, uint64_t now_ns)
{
    return now_ns > alone_ns ? (uint32_t)((double)(now_ns - alone_ns) / (double)now_ns * MILLION)
                             : 0;
}

static uint32_t most_ppm(uint32_t limit_ppm)
{
    return (uint32_t)((uint64_t)limit_ppm * NARROW_PART_PPM / MILLION);
}

bool narrow_allows(const struct narrow *narrow, uint32_t limit_ppm)
{
    return narrow->spent_ppm <= most_ppm(limit_ppm);
}

bool narrow_add(struct narrow *narrow, uint64_t alone_ns, uint64_t now_ns, uint32_t limit_ppm)
{
    uint32_t tried = narrow_next(narrow), cost = cost_ppm(alone_ns, now_ns);

    if (cost > most_ppm(limit_ppm)) {
        narrow->few = tried;
        return false;
    }
    narrow->enough = tried;
    narrow->spent_ppm = cost;
    return true;
}
