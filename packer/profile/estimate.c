/* Smooths samples: one stall, pause or preempted window does not change the value. Reads no clock,
 * so the same samples result in the same value. RULES.md: R2. */
#include "packer/profile/estimate.h"

#include <stdlib.h>
#include <string.h>

#define SMOOTHING 10 /* a new median has a weight of 1/10 */

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static uint64_t median(const struct estimate *e)
{
    uint64_t values[ESTIMATE_RECENT];
    uint32_t count = e->samples < ESTIMATE_RECENT ? e->samples : ESTIMATE_RECENT;
    memcpy(values, e->recent, count * sizeof *values);
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : values[count / 2 - 1] / 2 + values[count / 2] / 2;
}

static uint64_t smooth(uint64_t value, uint64_t news)
{
    return news > value ? value + (news - value) / SMOOTHING : value - (value - news) / SMOOTHING;
}

/* Adds a sample. The first ESTIMATE_RECENT medians are not smoothed, because earlier values have
 * too few samples. */
void estimate_add(struct estimate *e, uint64_t sample)
{
    e->recent[e->next] = sample;
    e->next = (e->next + 1) % ESTIMATE_RECENT;
    e->samples += e->samples < 2 * ESTIMATE_RECENT;
    uint64_t news = median(e);
    e->value = e->samples <= ESTIMATE_RECENT ? news : smooth(e->value, news);
}

void estimate_restart(struct estimate *e) { e->samples = e->next = 0; }
