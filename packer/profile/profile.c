/* From samples to what is known of a job. Must never read a clock or look at more than the samples:
 * the same samples give the same profile. README.md: R1 to R5. */
#include "packer/profile/profile.h"

#include <stddef.h>

#include "packer/packer.h"

#define MILLION 1000000

/* What is a time of a round, in any order. */
static const size_t times[] = {
    offsetof(struct profile_times, period_ns), offsetof(struct profile_times, busiest_ns),
    offsetof(struct profile_times, lanes_ns),  offsetof(struct profile_times, span_ns),
    offsetof(struct profile_times, burst_ns),  offsetof(struct profile_times, slack_ns)};
_Static_assert(sizeof times / sizeof times[0] == PROFILE_TIMES, "each is estimated");

static uint64_t *time_at(struct profile_times *of, size_t offset)
{
    return (uint64_t *)((char *)of + offset);
}

/* Beside others a round ends otherwise. */
static void forget_ending(struct profile_times *of)
{
    of->span_ns = of->burst_ns = of->slack_ns = 0;
}

/* Longer by a quarter than alone, and than what its fullest lane has more than alone explains.
 * What others cost it is kept below that by far: it is the job that has changed (R9). */
static bool is_strange(const struct profile *p)
{
    uint64_t explained_ns = p->alone.period_ns;
    if (p->now.busiest_ns > p->alone.busiest_ns)
        explained_ns += p->now.busiest_ns - p->alone.busiest_ns;
    return p->alone.period_ns > 0 && p->now.period_ns > explained_ns + explained_ns / 4;
}

/* Alone on the lanes that are to be tried (R10). Says whether it is known now if these do. */
static bool judge_lanes(struct profile *p, uint32_t limit_ppm)
{
    if (limit_ppm == 0 || p->setting_rounds < PROFILE_TRIED_ROUNDS)
        return false;
    uint64_t mean_ns = p->setting_ns / p->setting_rounds; /* a median of 9 would be of few rounds */
    if (narrow_take(&p->narrow, p->alone.period_ns, mean_ns, limit_ppm))
        p->fewest = p->now;
    return true;
}

/* On those that are enough it is known what they cost it, so the mark goes with it, whatever
 * becomes of the job. */
static void follow_on_fewest(struct profile *p)
{
    p->fewest = p->now;
    p->alone.period_ns =
        (uint64_t)((double)p->now.period_ns * (1 - (double)p->narrow.spent_ppm / MILLION) + 0.5);
    p->strange = 0;
}

/* What it costs was measured under a limit that was less strict. */
static void heed_limit(struct profile *p, uint32_t limit_ppm)
{
    if (limit_ppm == 0 || narrow_allows(&p->narrow, limit_ppm))
        return;
    p->narrow = (struct narrow){.few = p->narrow.enough, .enough = p->alone_lanes};
    p->fewest = (struct profile_times){0};
}

enum profile_stand {
    STANDS_ELSEWHERE,
    STANDS_TRIED,  /* alone on the lanes that are to be tried, or that were too few */
    STANDS_FEWEST, /* alone on those that are enough, fewer than it once had */
};

static enum profile_stand stand(const struct profile *p)
{
    uint32_t next = narrow_next(&p->narrow);
    if (!p->is_alone || p->lanes >= p->alone_lanes || p->alone.period_ns == 0)
        return STANDS_ELSEWHERE;
    if ((next > 0 && p->lanes == next) || (p->narrow.few > 0 && p->lanes <= p->narrow.few))
        return STANDS_TRIED;
    return p->lanes == p->narrow.enough && next == 0 ? STANDS_FEWEST : STANDS_ELSEWHERE;
}

static void begin_alone(struct profile *p, bool counts)
{
    p->alone_lanes = counts ? p->lanes : 0;
    p->fewest = (struct profile_times){0};
    narrow_begin(&p->narrow, p->alone_lanes);
}

/* What it loses is told against the most lanes that it was alone on: what it is short of on fewer
 * is a loss as well (R3). Says whether it is news how many it needs. */
static bool settle(struct profile *p, uint32_t limit_ppm)
{
    for (size_t t = 0; t < PROFILE_TIMES; t++)
        *time_at(&p->now, times[t]) = p->estimates[t].value;
    heed_limit(p, limit_ppm);
    enum profile_stand at = stand(p);
    if (at == STANDS_FEWEST) {
        follow_on_fewest(p);
        return false;
    }
    if (at == STANDS_TRIED) /* no limit holds there: it may be as slow as it likes (R9) */
        return p->lanes == narrow_next(&p->narrow) && judge_lanes(p, limit_ppm);
    p->strange = is_strange(p) ? p->strange + 1 : 0;
    bool is_other = p->now.period_ns < p->alone.period_ns - p->alone.period_ns / 20 ||
                    p->strange >= PROFILE_STRANGE_SAMPLES;
    bool counts = p->is_alone && (is_other || p->lanes >= p->alone_lanes);
    if (!counts && !is_other)
        return false;
    if (is_other || p->lanes > p->alone_lanes)
        begin_alone(p, counts);
    p->alone = counts ? p->now : (struct profile_times){0};
    p->strange = 0;
    return false;
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

static void keep(struct profile *p, const struct profile_sample *sample)
{
    struct profile_times of = {.period_ns = sample->elapsed_ns / sample->rounds,
                               .busiest_ns = sample->busiest_ns,
                               .lanes_ns = sample->lanes_ns,
                               .span_ns = sample->span_ns,
                               .burst_ns = sample->burst_ns,
                               .slack_ns = sample->slack_ns};
    bool is_new_setting = p->is_alone != sample->is_alone || p->lanes != sample->lanes;
    p->is_alone = sample->is_alone;
    p->lanes = sample->lanes;
    p->setting_rounds = sample->rounds + (is_new_setting ? 0 : p->setting_rounds);
    p->setting_ns = sample->elapsed_ns + (is_new_setting ? 0 : p->setting_ns);
    for (size_t t = 0; t < PROFILE_TIMES; t++) {
        if (is_new_setting)
            estimate_restart(&p->estimates[t]);
        estimate_take(&p->estimates[t], *time_at(&of, times[t]));
    }
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
        p->estimates[0].samples < PROFILE_LEAST_SAMPLES)
        return PROFILE_NOTHING;
    bool was_alone = p->alone.period_ns > 0;
    bool is_narrowed = settle(p, sample->loss_limit_ppm);
    if (p->used.period_ns == 0 || (!was_alone && p->alone.period_ns > 0))
        return PROFILE_MEASURED;
    if (is_narrowed)
        return PROFILE_NARROWED;
    return has_drifted(p) ? PROFILE_DRIFTED : PROFILE_NOTHING;
}

void profile_use(struct profile *p) { p->used = profile_known(p); }

void profile_recall(struct profile *p, const struct profile_times *before, bool is_alone,
                    uint32_t lanes, const struct narrow *narrow)
{
    *(is_alone ? &p->alone : &p->before) = *before;
    p->alone_lanes = is_alone ? lanes : 0;
    p->narrow = is_alone ? *narrow : (struct narrow){0};
    profile_use(p);
}

bool profile_knows_alone(const struct profile *p) { return p->alone.period_ns > 0; }

/* How it ends on the lanes that it needs, and what the busiest of these has, is no loss any more:
 * that is counted (R10). */
static struct profile_times on_fewest(const struct profile *p)
{
    struct profile_times known = p->fewest.period_ns ? p->fewest : p->alone;
    known.period_ns = p->alone.period_ns;
    return known;
}

/* As it runs says more of a job that was never alone than how it once ran beside others. */
static struct profile_times best_known(const struct profile *p)
{
    if (profile_knows_alone(p))
        return on_fewest(p);
    struct profile_times known = p->now.period_ns ? p->now : p->before;
    forget_ending(&known);
    return known;
}

/* Sharing lengthens the round, not the lane time of it. The busiest lane keeps its part of that:
 * lane time beyond it counts as a longer round (L3), so it must not come from another setting. */
struct profile_times profile_known(const struct profile *p)
{
    struct profile_times known = best_known(p);
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
