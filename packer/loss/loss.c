/* Owns what all rules of loss have in common: the loss limit, and the period of a job alone on a
 * lane. Uses only addition, subtraction, multiplication and division of doubles, so plans are the
 * same on every machine (P1). RULES.md: L1 to L8. */
#include "packer/loss/loss.h"

#include <errno.h>
#include <string.h>

#include "packer/baseline/baseline.h"

/* A limit of 100 % would cause a division by 0. */
#define LIMIT_PPM_MAX 999000

static const struct loss_rule *const rules[] = {&loss_shared, &loss_rate, &loss_cycle};

const struct loss_rule *loss_rule_find(const char *name)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (strcmp(rules[i]->name, name) == 0)
            return rules[i];
    return NULL;
}

uint32_t packer_loss_limit_ppm(uint32_t service_ppm, uint32_t tenant_ppm, uint32_t job_ppm)
{
    uint32_t named[] = {service_ppm, tenant_ppm, job_ppm}, strictest = 0;

    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (named[i] > 0 && (strictest == 0 || named[i] < strictest))
            strictest = named[i];
    return strictest > 0 ? strictest : PACKER_LOSS_LIMIT_PPM;
}

int packer_losses(const char *policy, const struct packer_resident *jobs, size_t count,
                  double *ret_losses)
{
    const struct loss_rule *rule = policy ? loss_rule_find(policy) : NULL;

    if (!rule)
        return -EINVAL;
    for (size_t i = 0; i < count; i++)
        if (jobs[i].timing.period_ns == 0 || jobs[i].timing.period_ns > PACKER_PERIOD_NS_MAX)
            return -EINVAL;
    rule->losses(jobs, count, ret_losses);
    return 0;
}

/* Returns by how much other jobs delay the end of the job's work on the lane (L8). `stretch`:
 * factor by which other jobs lengthen the work. The result is the larger one of two delays: the
 * delay of the last burst of work, and the time by which the lengthened work of the whole round
 * exceeds span_ns. */
static double late_ns(const struct packer_resident *job, double stretch)
{
    const struct packer_timing *timing = &job->timing;
    double work_ns = stretch * (double)job->lane_ns, spread_ns = (double)timing->spread_ns;
    uint64_t burst_ns = timing->burst_ns < timing->spread_ns ? timing->burst_ns : timing->spread_ns;
    double by_burst_ns = (double)burst_ns * (work_ns / spread_ns - 1);
    double by_all_ns = work_ns - (double)timing->span_ns;
    double most_ns = by_burst_ns > by_all_ns ? by_burst_ns : by_all_ns;

    return most_ns > (double)timing->slack_ns ? most_ns - (double)timing->slack_ns : 0;
}

int packer_predict(const char *policy, const struct packer_resident *jobs, size_t count,
                   double *ret_losses)
{
    const struct loss_rule *rule = policy ? loss_rule_find(policy) : NULL;
    int error = packer_losses(policy, jobs, count, ret_losses);

    for (size_t i = 0; i < count && error == 0; i++) {
        const struct packer_timing *timing = &jobs[i].timing;
        double stretch, late;

        if (timing->span_ns == 0 || timing->spread_ns == 0)
            continue;
        stretch = (rule->stretch ? rule->stretch : loss_shared.stretch)(jobs, count, i);
        late = late_ns(&jobs[i], stretch);
        ret_losses[i] = stretch < 0 ? 1 : late / ((double)timing->period_ns + late);
    }
    for (size_t i = 0; i < count && error == 0; i++)
        ret_losses[i] = 1 - (1 - ret_losses[i]) * (1 - jobs[i].timing.spent_ppm / 1e6);
    return error;
}

double loss_limit(const struct packer_timing *timing)
{
    uint32_t ppm = timing->loss_limit_ppm ? timing->loss_limit_ppm : PACKER_LOSS_LIMIT_PPM;

    ppm = ppm > timing->spent_ppm ? ppm - timing->spent_ppm : 1;
    return (ppm < LIMIT_PPM_MAX ? ppm : LIMIT_PPM_MAX) / 1e6;
}

/* Returns the lane time on one lane that does not lengthen the round (L3). */
static double free_ns(const struct packer_timing *timing)
{
    bool known = timing->spread_ns > 0 && timing->spread_ns < timing->period_ns;

    return (double)(known ? timing->spread_ns : timing->period_ns);
}

double loss_alone_ns(const struct packer_timing *timing, double lane_ns)
{
    double over_ns = lane_ns - free_ns(timing);

    return (double)timing->period_ns + (over_ns > 0 ? over_ns : 0);
}

double loss_alone_room_ns(const struct packer_timing *timing, double loss)
{
    return free_ns(timing) + (double)timing->period_ns * loss / (1 - loss);
}

double loss_share_room_ns(const struct packer_timing *timing, double share)
{
    double period_ns = (double)timing->period_ns, ns = share * period_ns;

    if (share >= 1)
        return 1e300; /* any lane time is allowed, because no share of a lane is above 1 */
    return ns <= free_ns(timing) ? ns : share * (period_ns - free_ns(timing)) / (1 - share);
}

double loss_share(const struct packer_resident *job)
{
    return (double)job->lane_ns / loss_alone_ns(&job->timing, (double)job->lane_ns);
}
