/* Makes room for a job: running jobs release workers (F2), then whole jobs rest (F3). The plan is
 * the number of workers in the field `giving` of each job, and is carried out only if enough slots
 * become free. A job that runs a stage (a phase with a fixed number of workers) must never lose a
 * worker, and a job without a report must never go below its minimum. */
#include "packer/elastic/internal.h"

#include <math.h>

/* Returns whether the victim may release slots for the job: both jobs have the same tenant, or the
 * victim's tenant has more slots (F6). */
static bool victims_tenant_gives(const struct roster_job *victim, const struct roster_job *job)
{
    return victim->tenant == job->tenant || victim->tenant->slots > job->tenant->slots;
}

static bool victims_is_running(const struct roster_job *job)
{
    return job->state == SCHEDULER_ACTIVE && job->phase != ROSTER_PROBING && !job->wants.is_stage &&
           !job->wants.is_held && !job->is_ending;
}

static bool victims_may_shrink(const struct scheduler *s, const struct roster_job *victim,
                               const struct roster_job *job)
{
    return victims_is_running(victim) && victim != job &&
           victim->workers - victim->giving > victim->wants.workers_min &&
           pace_held_until_ns(s, victim) <= s->now_ns && victims_tenant_gives(victim, job);
}

/* Returns whether a probing job may release workers above its minimum, even in its hold time. */
static bool victims_may_probe_narrower(const struct roster_job *victim,
                                       const struct roster_job *job)
{
    return roster_is_probing(victim) && victim != job && !victim->is_ending &&
           !victim->wants.is_stage && !victim->wants.is_held &&
           victim->workers > victim->wants.workers_min + victim->giving &&
           victims_tenant_gives(victim, job);
}

/* Returns the speed that the victim loses with its next worker, in speeds of one worker. */
static double victims_loss(const struct roster_job *victim)
{
    const struct curve *curve = &victim->history->curve;
    uint32_t workers = victim->workers - victim->giving;
    return curve_relative(curve, workers) - curve_relative(curve, workers - 1);
}

/* Returns the next job to shrink; NULL: no job may shrink. The tenant with the most slots comes
 * first, then the smallest loss, then the lowest job id. */
static struct roster_job *victims_find_of(const struct scheduler *s, const struct roster_job *job,
                                          bool is_probing, double *ret_loss)
{
    struct roster_job *best = NULL;
    double best_loss = 0;
    for (size_t i = 0; i < s->jobs_count; i++) {
        struct roster_job *victim = s->jobs[i];
        if (is_probing ? !victims_may_probe_narrower(victim, job)
                       : !victims_may_shrink(s, victim, job))
            continue;
        double loss = victims_loss(victim);
        if (best &&
            (victim->tenant->slots < best->tenant->slots ||
             (victim->tenant->slots == best->tenant->slots &&
              (loss > best_loss || (loss == best_loss && victim->wants.id > best->wants.id)))))
            continue;
        best = victim;
        best_loss = loss;
    }
    *ret_loss = best_loss;
    return best;
}

struct roster_job *victims_find(const struct scheduler *s, const struct roster_job *job,
                                double *ret_loss)
{
    return victims_find_of(s, job, false, ret_loss);
}

static bool victims_may_rest(const struct scheduler *s, const struct roster_job *victim,
                             const struct roster_job *job)
{
    return victims_is_running(victim) && !victim->wants.never_rests && victim != job &&
           victim->workers > victim->giving && victim->since_ns + pace_quantum_ns(s) <= s->now_ns &&
           victims_tenant_gives(victim, job);
}

/* Returns whether `a` rests before `b`. The order: jobs of the tenant with the most slots, then the
 * lowest rung, the worst report, the latest submission. */
static bool victims_ranks_below(const struct roster_job *a, const struct roster_job *b)
{
    if (a->tenant->slots != b->tenant->slots)
        return a->tenant->slots > b->tenant->slots;
    if (a->rung != b->rung)
        return a->rung < b->rung;
    if (isnan(a->value) || isnan(b->value))
        return isnan(a->value);
    return a->value >= b->value;
}

static uint32_t victims_planned_rests(const struct scheduler *s)
{
    uint32_t count = 0;
    for (size_t i = 0; i < s->jobs_count; i++)
        count += s->jobs[i]->giving > 0 && s->jobs[i]->giving == s->jobs[i]->workers;
    return count;
}

static struct roster_job *victims_find_resting(const struct scheduler *s,
                                               const struct roster_job *job)
{
    struct roster_job *best = NULL;
    if (s->options.keeps_processes && roster_has_all_asleep(s, victims_planned_rests(s)))
        return NULL;
    for (size_t i = 0; i < s->jobs_count; i++)
        if (victims_may_rest(s, s->jobs[i], job) &&
            (!best || victims_ranks_below(s->jobs[i], best)))
            best = s->jobs[i];
    return best;
}

static uint32_t victims_plan_shrinks(struct scheduler *s, const struct roster_job *job,
                                     bool is_probing, uint32_t planned, uint32_t count)
{
    double loss;
    while (planned < count) {
        struct roster_job *victim = victims_find_of(s, job, is_probing, &loss);
        if (!victim)
            break;
        victim->giving++;
        planned++;
    }
    return planned;
}

static uint32_t victims_plan_rests(struct scheduler *s, const struct roster_job *job,
                                   uint32_t planned, uint32_t count)
{
    while (planned < count) {
        struct roster_job *victim = victims_find_resting(s, job);
        if (!victim)
            break;
        planned += victim->workers - victim->giving;
        victim->giving = victim->workers;
    }
    return planned;
}

/* Cancels planned releases beyond `count`, which are unnecessary because whole jobs rest. Returns
 * the number of workers whose release is still planned. */
static uint32_t victims_spare(struct scheduler *s, uint32_t planned, uint32_t count)
{
    for (size_t i = s->jobs_count; i-- > 0 && planned > count;) {
        struct roster_job *victim = s->jobs[i];
        uint32_t spare = victim->giving < victim->workers ? victim->giving : 0;
        spare = spare < planned - count ? spare : planned - count;
        victim->giving -= spare;
        planned -= spare;
    }
    return planned;
}

static void victims_carry_out(struct scheduler *s, bool is_enough)
{
    for (size_t i = 0; i < s->jobs_count; i++) {
        struct roster_job *victim = s->jobs[i];
        uint32_t giving = victim->giving;
        victim->giving = 0;
        if (!is_enough || giving == 0)
            continue;
        if (giving == victim->workers)
            roster_ask_to_rest(s, victim);
        else
            for (; giving > 0; giving--)
                roster_ask_to_leave(s, victim);
    }
}

uint32_t victims_make_room(struct scheduler *s, const struct roster_job *job, uint32_t count,
                           unsigned ways)
{
    uint32_t planned = 0;
    if (ways & VICTIMS_SHRINK)
        planned = victims_plan_shrinks(s, job, false, planned, count);
    if (ways & VICTIMS_REST)
        planned = victims_plan_rests(s, job, planned, count);
    if (ways & VICTIMS_PROBE_NARROWER)
        planned = victims_plan_shrinks(s, job, true, planned, count);
    planned = victims_spare(s, planned, count);
    victims_carry_out(s, planned >= count);
    return planned >= count ? planned : 0;
}

uint32_t victims_rest_one(struct scheduler *s, const struct roster_job *job)
{
    struct roster_job *victim = victims_find_resting(s, job);
    uint32_t workers = victim ? victim->workers : 0;
    if (victim)
        roster_ask_to_rest(s, victim);
    return workers;
}
