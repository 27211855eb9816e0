/* Computes a job's times from samples alone, without a clock, so the same samples result in the
 * same profile. RULES.md: R1 to R10. */
#include "packer/profile/profile.h"

#include <stddef.h>

#include "packer/packer.h"

#define MILLION 1000000

/* Offsets of the estimated times. estimates[0] is the period. */
static const size_t times[] = {
    offsetof(struct profile_times, period_ns), offsetof(struct profile_times, busiest_ns),
    offsetof(struct profile_times, lanes_ns),  offsetof(struct profile_times, span_ns),
    offsetof(struct profile_times, burst_ns),  offsetof(struct profile_times, slack_ns)};
_Static_assert(sizeof times / sizeof times[0] == PROFILE_TIMES, "each is estimated");

static uint64_t *time_at(struct profile_times *of, size_t offset)
{
    return (uint64_t *)((char *)of + offset);
}

/* Deletes the three times at the end of a round: beside other jobs these samples include work of
 * the other jobs. */
static void clear_ending(struct profile_times *of)
{
    of->span_ns = of->burst_ns = of->slack_ns = 0;
}

/* Returns whether the job itself has changed: its period is more than a quarter above the explained
 * period (the period alone plus the growth of lane time on the busiest lane). Other jobs cannot be
 * the cause, because loss limits keep their effect far below a quarter (R9). */
static bool is_unexplained(const struct profile *p)
{
    uint64_t explained_ns = p->alone.period_ns;
    if (p->now.busiest_ns > p->alone.busiest_ns)
        explained_ns += p->now.busiest_ns - p->alone.busiest_ns;
    return p->alone.period_ns > 0 && p->now.period_ns > explained_ns + explained_ns / 4;
}

/* Ends the trial with fewer lanes (R10). Returns whether the trial has a result. */
static bool end_trial(struct profile *p, uint32_t limit_ppm)
{
    if (limit_ppm == 0 || p->setting_rounds < PROFILE_TRIED_ROUNDS)
        return false;
    uint64_t mean_ns =
        /* the mean is used, because a median of 9 samples may cover too few rounds */
        p->setting_ns / p->setting_rounds;
    if (narrow_add(&p->narrow, p->alone.period_ns, mean_ns, limit_ppm))
        p->fewest = p->now;
    return true;
}

/* Stores the times of a job on `enough` lanes, where the cost of fewer lanes is known. The period
 * on all lanes is computed from the present period, so that it reflects changes of the job. */
static void follow_on_fewest(struct profile *p)
{
    p->fewest = p->now;
    p->alone.period_ns =
        (uint64_t)((double)p->now.period_ns * (1 - (double)p->narrow.spent_ppm / MILLION) + 0.5);
    p->unexplained = 0;
}

/* Undoes the search for fewer lanes if its cost is too high for the present loss limit. The limit
 * may have been looser during the search. */
static void apply_limit(struct profile *p, uint32_t limit_ppm)
{
    if (limit_ppm == 0 || narrow_allows(&p->narrow, limit_ppm))
        return;
    p->narrow = (struct narrow){.few = p->narrow.enough, .enough = p->alone_lanes};
    p->fewest = (struct profile_times){0};
}

/* The lanes on which the job runs, compared with its search for fewer lanes (R10). */
enum profile_setting {
    /* on lanes with other jobs, or without other jobs on a number of lanes that the search does not
     * use */
    SETTING_OTHER,
    SETTING_TRIAL,  /* without other jobs, on the lanes of the trial or on too few lanes */
    SETTING_FEWEST, /* without other jobs, on the `enough` lanes of a completed search */
};

static enum profile_setting setting_of(const struct profile *p)
{
    uint32_t next = narrow_next(&p->narrow);
    if (!p->is_alone || p->lanes >= p->alone_lanes || p->alone.period_ns == 0)
        return SETTING_OTHER;
    if ((next > 0 && p->lanes == next) || (p->narrow.few > 0 && p->lanes <= p->narrow.few))
        return SETTING_TRIAL;
    return p->lanes == p->narrow.enough && next == 0 ? SETTING_FEWEST : SETTING_OTHER;
}

static void begin_alone(struct profile *p, bool counts)
{
    p->alone_lanes = counts ? p->lanes : 0;
    p->fewest = (struct profile_times){0};
    narrow_begin(&p->narrow, p->alone_lanes);
}

/* Updates the known times from the estimates. `alone` has the times on the largest number of
 * lanes, so a longer period on fewer lanes counts as loss (R3). Returns whether a trial has a
 * new verdict. */
static bool update_known(struct profile *p, uint32_t limit_ppm)
{
    for (size_t t = 0; t < PROFILE_TIMES; t++)
        *time_at(&p->now, times[t]) = p->estimates[t].value;
    apply_limit(p, limit_ppm);
    enum profile_setting at = setting_of(p);
    if (at == SETTING_FEWEST) {
        follow_on_fewest(p);
        return false;
    }
    if (at == SETTING_TRIAL) /* during a trial a longer period is expected (R9) */
        return p->lanes == narrow_next(&p->narrow) && end_trial(p, limit_ppm);
    p->unexplained = is_unexplained(p) ? p->unexplained + 1 : 0;
    bool is_other = p->now.period_ns < p->alone.period_ns - p->alone.period_ns / 20 ||
                    p->unexplained >= PROFILE_UNEXPLAINED_SAMPLES;
    bool counts = p->is_alone && (is_other || p->lanes >= p->alone_lanes);
    if (!counts && !is_other)
        return false;
    if (is_other || p->lanes > p->alone_lanes)
        begin_alone(p, counts);
    p->alone = counts ? p->now : (struct profile_times){0};
    p->unexplained = 0;
    return false;
}

static bool differs(uint64_t was, uint64_t is) { return is > was + was / 4 || is < was - was / 4; }

/* Returns whether period or lane time differs by a quarter from the times at the last
 * profile_use(). A change of lane time below a hundredth of the period does not count, because no
 * loss depends on it. */
static bool has_drifted(const struct profile *p)
{
    struct profile_times known = profile_known(p);
    uint64_t was = p->used.lanes_ns, is = known.lanes_ns;
    uint64_t by = is > was ? is - was : was - is;
    return differs(p->used.period_ns, known.period_ns) ||
           (differs(was, is) && by > known.period_ns / 100);
}

static void add_to_estimates(struct profile *p, const struct profile_sample *sample)
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
        estimate_add(&p->estimates[t], *time_at(&of, times[t]));
    }
}

enum profile_news profile_add(struct profile *p, const struct profile_sample *sample)
{
    if (sample->rounds == 0 || sample->elapsed_ns / sample->rounds > PACKER_PERIOD_NS_MAX)
        return PROFILE_NOTHING;
    bool is_warm = p->rounds >= PROFILE_WARM_ROUNDS;
    p->rounds += sample->rounds;
    if (!is_warm)
        return PROFILE_NOTHING;
    add_to_estimates(p, sample);
    if (p->rounds < PROFILE_WARM_ROUNDS + PROFILE_LEAST_ROUNDS ||
        p->estimates[0].samples < PROFILE_LEAST_SAMPLES)
        return PROFILE_NOTHING;
    bool was_alone = p->alone.period_ns > 0;
    bool is_narrowed = update_known(p, sample->loss_limit_ppm);
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

/* Returns the times on the fewest lanes, except the period, which is the period on all lanes:
 * spent_ppm already contains the cost of fewer lanes (R10). */
static struct profile_times on_fewest(const struct profile *p)
{
    struct profile_times known = p->fewest.period_ns ? p->fewest : p->alone;
    known.period_ns = p->alone.period_ns;
    return known;
}

/* Returns the most reliable times: without other jobs, otherwise present times beside other jobs,
 * otherwise times of an earlier run. */
static struct profile_times best_known(const struct profile *p)
{
    if (profile_knows_alone(p))
        return on_fewest(p);
    struct profile_times known = p->now.period_ns ? p->now : p->before;
    clear_ending(&known);
    return known;
}

/* Returns the times for placement. Other jobs lengthen the period, but not the lane time, so the
 * present lane time on all lanes is returned. The known lane time on the busiest lane and burst_ns
 * are multiplied by the change of this lane time (L3). */
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
