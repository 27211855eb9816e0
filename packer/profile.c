/* From samples to what is known of a job. Must never read a clock or look at more than the samples:
 * the same samples give the same profile. README.md: R1 to R5. */
#include "packer/profile.h"

#include <stddef.h>
#include <stdlib.h>

#include "packer/packer.h"

#define SMOOTHING 10 /* the weight of a new median is one in so many */
#define MILLION 1000000

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static uint64_t median(uint64_t *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : values[count / 2 - 1] / 2 + values[count / 2] / 2;
}

/* What is a time of a round, in any order. */
static const size_t times[] = {
    offsetof(struct profile_times, period_ns), offsetof(struct profile_times, busiest_ns),
    offsetof(struct profile_times, lanes_ns),  offsetof(struct profile_times, span_ns),
    offsetof(struct profile_times, burst_ns),  offsetof(struct profile_times, slack_ns)};
#define TIMES (sizeof times / sizeof times[0])

static uint64_t *time_at(struct profile_times *of, size_t offset)
{
    return (uint64_t *)((char *)of + offset);
}

static struct profile_times medians(struct profile *p)
{
    struct profile_times result = {0};
    uint32_t count = p->samples < PROFILE_RECENT ? p->samples : PROFILE_RECENT;
    for (size_t t = 0; t < TIMES; t++) {
        uint64_t values[PROFILE_RECENT];
        for (uint32_t i = 0; i < count; i++)
            values[i] = *time_at(&p->recent[i], times[t]);
        *time_at(&result, times[t]) = median(values, count);
    }
    return result;
}

static void smooth(uint64_t *value, uint64_t news)
{
    if (news > *value)
        *value += (news - *value) / SMOOTHING;
    else
        *value -= (*value - news) / SMOOTHING;
}

/* Beside others a round ends otherwise. */
static void forget_ending(struct profile_times *of)
{
    of->span_ns = of->burst_ns = of->slack_ns = 0;
}

/* With the first medians of a setting nothing is smoothed: they are all there is. */
static void settle(struct profile *p)
{
    struct profile_times news = medians(p);
    if (p->samples <= PROFILE_RECENT) {
        p->now = news;
    } else {
        for (size_t t = 0; t < TIMES; t++)
            smooth(time_at(&p->now, times[t]), *time_at(&news, times[t]));
    }
    bool is_faster = p->now.period_ns < p->alone.period_ns - p->alone.period_ns / 20;
    if (p->is_alone || is_faster)
        p->alone = p->now;
    if (!p->is_alone && is_faster)
        forget_ending(&p->alone);
}

static bool differs(uint64_t was, uint64_t is) { return is > was + was / 4 || is < was - was / 4; }

/* Lane time of less than a hundredth of the period costs nobody anything. */
static bool has_drifted(const struct profile *p)
{
    struct profile_times known = profile_known(p);
    uint64_t was = p->used.lanes_ns, is = known.lanes_ns;
    uint64_t by = is > was ? is - was : was - is;
    return differs(p->used.period_ns, known.period_ns) ||
           (differs(was, is) && by > known.period_ns / 100);
}

/* The oldest of the recent ones goes. */
static void keep(struct profile *p, const struct profile_sample *sample)
{
    if (p->is_alone != sample->is_alone)
        p->samples = 0;
    p->is_alone = sample->is_alone;
    p->recent[p->samples % PROFILE_RECENT] =
        (struct profile_times){.period_ns = sample->elapsed_ns / sample->rounds,
                               .busiest_ns = sample->busiest_ns,
                               .lanes_ns = sample->lanes_ns,
                               .span_ns = sample->span_ns,
                               .burst_ns = sample->burst_ns,
                               .slack_ns = sample->slack_ns};
    p->samples++;
    if (p->samples == 3 * PROFILE_RECENT) /* so that it never wraps, and says "many" */
        p->samples -= PROFILE_RECENT;
}

enum profile_news profile_take(struct profile *p, const struct profile_sample *sample)
{
    if (sample->rounds == 0 || sample->elapsed_ns / sample->rounds > PACKER_PERIOD_NS_MAX)
        return PROFILE_NOTHING;
    bool is_warm = p->rounds >= PROFILE_WARM_ROUNDS;
    p->rounds += sample->rounds;
    if (!is_warm)
        return PROFILE_NOTHING;
    keep(p, sample);
    if (p->rounds < PROFILE_WARM_ROUNDS + PROFILE_LEAST_ROUNDS ||
        p->samples < PROFILE_LEAST_SAMPLES)
        return PROFILE_NOTHING;
    settle(p);
    if (p->used.period_ns == 0)
        return PROFILE_MEASURED;
    return has_drifted(p) ? PROFILE_DRIFTED : PROFILE_NOTHING;
}

void profile_use(struct profile *p) { p->used = profile_known(p); }

void profile_recall(struct profile *p, const struct profile_times *alone)
{
    p->alone = *alone;
    profile_use(p);
}

/* Sharing lengthens the round, not the lane time of it. The busiest lane keeps its part of that:
 * lane time beyond it counts as a longer round (L3), so it must not come from another setting. */
struct profile_times profile_known(const struct profile *p)
{
    struct profile_times known = p->alone.period_ns ? p->alone : p->now;
    if (p->alone.period_ns == 0)
        forget_ending(&known);
    if (p->now.period_ns == 0 || known.lanes_ns == 0)
        return known;
    double changed = (double)p->now.lanes_ns / (double)known.lanes_ns;
    known.busiest_ns = (uint64_t)((double)known.busiest_ns * changed + 0.5);
    known.burst_ns = (uint64_t)((double)known.burst_ns * changed + 0.5);
    known.lanes_ns = p->now.lanes_ns;
    return known;
}

uint32_t profile_loss_ppm(const struct profile *p)
{
    if (p->alone.period_ns == 0 || p->now.period_ns <= p->alone.period_ns)
        return 0;
    double kept = (double)p->alone.period_ns / (double)p->now.period_ns;
    return (uint32_t)((1 - kept) * MILLION);
}
