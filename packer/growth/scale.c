/* Owns the state between windows, and the order of the rules. Must never read a clock. Must never
 * make two decisions in one call, because the second would not see the effect of the first. The
 * rules are in up.c, down.c and narrow.c. RULES.md: G1 to G13. */
#include "packer/growth/scale.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "packer/growth/internal.h"
#include "packer/growth/plan.h"

#define NS_PER_S UINT64_C(1000000000)
#define WINDOWS_MAX (UINT32_MAX / 2)

/* --- state from window to window --- */

/* Returns the time since the last window. A clock that jumps forwards or backwards completes no
 * hold time (G7). */
static uint64_t elapsed_ns(struct scale *scale, uint64_t now_ns)
{
    uint64_t elapsed = scale->has_begun && now_ns > scale->last_ns ? now_ns - scale->last_ns : 0;
    scale->has_begun = true;
    scale->last_ns = now_ns;
    return elapsed < SCALE_STEP_NS_MAX ? elapsed : SCALE_STEP_NS_MAX;
}

static void remember_job(const struct scale_job *job)
{
    struct scale_memory *m = job->memory;
    if (job->is_moving)
        return;
    bool is_in_trial = m->narrowed > 0 && m->narrowed < SCALE_ALONE_WINDOWS;
    if (scale_is_over(job) && !is_in_trial) {
        m->within = 0;
        m->over += m->over < WINDOWS_MAX;
        return;
    }
    m->over = 0;
    m->stay = SCALE_STAY_NOT;
    m->within += m->within < WINDOWS_MAX;
    /* The count of reliefs is reset only long after the lanes may be drained again. Otherwise a
     * drain that is always followed by a relief would be repeated at a constant rate. */
    if (m->within >= 8 * SCALE_WITHIN_WINDOWS << m->reliefs)
        m->reliefs = 0;
}

/* Counts the windows of a job whose period without other jobs should be measured (G11). */
static void remember_company(const struct scale_job *job, bool shares)
{
    struct scale_memory *m = job->memory;
    bool counts = job->wants_alone && !job->is_moving;
    m->shares = counts && shares ? m->shares + (m->shares < WINDOWS_MAX) : 0;
    m->alone = counts && !shares ? m->alone + (m->alone < WINDOWS_MAX) : 0;
}

/* Ends a trial when the needed number of lanes is known and the job has that number (G12). */
static void remember_narrow(const struct scale_job *job, uint32_t lanes, bool shares)
{
    struct scale_memory *m = job->memory;
    bool is_sought = job->lanes_next > 0 || lanes < job->lanes_enough || job->is_moving;
    bool goes_on = !shares && job->lanes_enough > 0 && is_sought;
    m->narrowed = m->narrowed > 0 && goes_on ? m->narrowed + (m->narrowed < WINDOWS_MAX) : 0;
    m->narrow_wait -= m->narrow_wait > 0;
    if (m->narrowed == SCALE_ALONE_WINDOWS)
        m->narrow_wait = SCALE_TRIAL_REST_WINDOWS;
    if (lanes == m->narrow_to && !job->is_moving)
        m->narrow_fails = 0;
}

static bool is_low(const struct scale_look *look)
{
    return look->used > 1 &&
           look->load < (double)(look->used - 1) * look->options.low_ppm / 1000000.0;
}

/* Updates two values of a count: the time since the count was last 0, and its minimum in that time.
 * `now` is the count in this window. */
static void hold(size_t now, uint64_t elapsed, uint64_t *held_ns, size_t *least)
{
    *held_ns = now && *least ? *held_ns + elapsed : 0;
    *least = now < *least || *least == 0 ? now : *least;
}

static void remember(struct scale *scale, const struct scale_look *look, uint64_t now_ns)
{
    uint64_t elapsed = elapsed_ns(scale, now_ns);
    for (size_t i = 0; i < look->seen->jobs_count; i++) {
        remember_job(&look->seen->jobs[i]);
        remember_company(&look->seen->jobs[i], look->shares[i]);
        remember_narrow(&look->seen->jobs[i], look->lanes_of[i], look->shares[i]);
    }
    scale->settle -= scale->settle > 0;
    scale->low_ns = is_low(look) ? scale->low_ns + elapsed : 0;
    hold(look->surplus, elapsed, &scale->idle_ns, &scale->idle_lanes);
    hold(look->stoppable, elapsed, &scale->stoppable_ns, &scale->stoppable);
}

/* --- one window --- */

static void say_nothing(const struct scale *scale, const struct scale_look *look,
                        struct scale_decision *d)
{
    if (look->short_of > look->room)
        snprintf(d->reason, sizeof d->reason,
                 "lanes wanted: %zu more, but %zu are open, which is the maximum number",
                 look->short_of, look->open);
    else
        snprintf(d->reason, sizeof d->reason,
                 "lanes open: %zu, without a job: %zu; the load is %.2f, low for %" PRIu64 " s",
                 look->open, look->empty, look->load, scale->low_ns / NS_PER_S);
}

static int decide(struct scale *scale, struct scale_look *look, struct scale_decision *d)
{
    static const scale_rule_fn rules[] = {
        scale_open_wanted,    scale_measure_alone, scale_narrow,     scale_relieve_worst,
        scale_drain_emptiest, scale_park_idle,     scale_stop_unused};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        int error = rules[i](scale, look, d);
        if (error != 0)
            return error;
    }
    say_nothing(scale, look, d);
    return 0;
}

int scale_tick(struct scale *scale, const struct scale_options *options,
               const struct scale_seen *seen, uint64_t now_ns, struct scale_decision *ret_decision)
{
    struct scale_decision d = {.verb = SCALE_NOTHING};
    struct scale_look look;
    int error = scale_look_init(&look, options, seen);
    if (error == 0) {
        remember(scale, &look, now_ns);
        error = decide(scale, &look, &d);
    }
    scale_look_fini(&look);
    if (error < 0) {
        scale_decision_fini(&d);
        return error;
    }
    *ret_decision = d;
    return 0;
}

void scale_decision_fini(struct scale_decision *decision)
{
    free(decision->lanes);
    free(decision->moves);
    *decision = (struct scale_decision){.verb = SCALE_NOTHING};
}
