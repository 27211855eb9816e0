/* Owns the order of a run (calibration, profiles, then turns) and both services. The services must
 * never work at the same time, because each would change the other's periods (B6). */
#include "bench/savings/savings.h"

#include "bench/lib/host.h"
#include "bench/savings/savings_report.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define SCALE_FIRST 0.05 /* scale of tensors for the first measurement */
#define CALIBRATION_NS 1.5e9
#define PROFILE_PASSES_MAX 3
/* number of readings of the lanes (looks) between two readings of the jobs: two seconds */
#define LOOKS_FOR_JOBS 4

const char *savings_setting_name(enum savings_setting setting)
{
    static const char *const names[] = {"alone", "dedicated", "shared"};
    return names[setting];
}

static struct turn *turn_create(const struct savings *s, const struct service *service)
{
    struct turn *turn = calloc(1, sizeof *turn);
    if (turn) {
        turn->plan = &s->plan;
        turn->service = service;
        turn->scales = service == &s->shared;
        turn->transport = s->transport;
    }
    return turn;
}

static int run(struct savings *s, struct turn *turn)
{
    int r = turn_run(turn);
    for (size_t i = 0; r == 0 && i < s->plan.jobs_count; i++)
        s->checked_rounds += turn->jobs[i].checked_rounds;
    s->wrong += r == 0 ? turn_wrong(turn) : 0;
    return r;
}

/* Measures the lane time of a pushed byte with exactly these jobs, because a byte costs more in
 * models with many small tensors. */
static int calibrate_once(struct savings *s)
{
    struct turn *turn = turn_create(s, &s->dedicated);
    double bytes = 0;
    if (!turn)
        return -ENOMEM;
    for (size_t i = 0; i < s->plan.jobs_count; i++)
        turn_add(turn, i, CALIBRATION_NS, 1);
    int r = run(s, turn);
    for (size_t i = 0; i < s->plan.jobs_count; i++)
        bytes += (double)plan_bytes(&s->plan, &s->plan.jobs[i]) * s->plan.jobs[i].workers *
                 turn->jobs[i].rounds;
    if (r == 0 && turn->used_s > 0) {
        s->lane_ns_a_byte = turn->used_s * 1e9 / bytes;
        plan_scale(&s->plan, s->lane_ns_a_byte, s->load);
    }
    free(turn);
    return r;
}

/* Repeats the calibration at the scale of its first result, because the cost of a byte depends on
 * the number of bytes. */
static int calibrate_scale(struct savings *s)
{
    s->plan.bytes_scale = SCALE_FIRST;
    int r = calibrate_once(s);
    return r < 0 ? r : calibrate_once(s);
}

/* Profiles the unknown jobs among `first` to `last`. */
static int profile_turn(struct savings *s, size_t first, size_t last)
{
    struct turn *turn = turn_create(s, &s->shared);
    if (!turn)
        return -ENOMEM;
    turn->jobs_looks = 1;
    for (size_t i = first; i <= last; i++)
        if (!s->is_known[i])
            turn_add(turn, i, PLAN_PROFILE_NS, PLAN_PROFILE_ROUNDS);
    int r = run(s, turn);
    for (size_t i = first; i <= last; i++)
        s->is_known[i] |= turn->jobs[i].is_known;
    s->profile_turns++;
    free(turn);
    return r;
}

static size_t count_known(const struct savings *s)
{
    size_t known = 0;
    for (size_t i = 0; i < s->plan.jobs_count; i++)
        known += s->is_known[i];
    return known;
}

/* Measures each new job on lanes without other jobs. The service stores the profile for the job's
 * next start (K15 to K17, svc/coordinator/RULES.md). */
static int profile(struct savings *s)
{
    size_t jobs = s->plan.jobs_count;
    int r = 0;
    for (int pass = 0; r == 0 && pass < PROFILE_PASSES_MAX && count_known(s) < jobs; pass++) {
        if (s->profiles_together)
            r = profile_turn(s, 0, jobs - 1);
        for (size_t i = 0; r == 0 && !s->profiles_together && i < jobs; i++)
            if (!s->is_known[i])
                r = profile_turn(s, i, i);
    }
    if (r == 0 && count_known(s) < jobs)
        fprintf(stderr, "gradpool-bench: the service has measured only %zu of %zu jobs\n",
                count_known(s), jobs);
    return r;
}

/* Records the last measurement before the middle of each part. */
static void keep_parts(const struct savings *s, struct savings_series *series,
                       const struct turn *turn)
{
    double part_s = s->plan.turn_ns / 1e9 / SAVINGS_PARTS_PLANNED;
    size_t look = 0;
    for (size_t part = 0; part < SAVINGS_PARTS; part++) {
        double at_s = (part + 0.5) * part_s;
        while (look + 1 < turn->looks_count && turn->looks[look + 1].at_s <= at_s)
            look++;
        if (turn->looks_count == 0 || at_s > turn->seconds)
            return;
        series->parts[part].allocated += turn->looks[look].lanes;
        if (!isnan(turn->looks[look].used)) {
            series->parts[part].used += turn->looks[look].used;
            series->parts[part].used_turns++;
        }
    }
}

/* Records the predicted losses of jobs; a job without measurements has none. */
static void keep_predicted(struct savings *s, const struct turn *turn)
{
    for (size_t i = 0; i < s->plan.jobs_count; i++) {
        double predicted = turn_predicted(&turn->jobs[i]);
        if (isnan(predicted))
            continue;
        s->predicted[i].sum += predicted;
        s->predicted[i].turns++;
    }
}

static void keep(struct savings *s, enum savings_setting setting, const struct turn *turn)
{
    struct savings_series *series = &s->series[setting];
    for (size_t i = 0; i < s->plan.jobs_count; i++)
        if (turn->jobs[i].takes_part)
            series->period_ns[i][series->periods[i]++] = turn->jobs[i].period_ns;
    if (setting == SAVINGS_SHARED)
        keep_predicted(s, turn);
    if (setting == SAVINGS_ALONE)
        return;
    series->offered[series->turns] = turn->offered;
    series->busiest[series->turns++] = turn->busiest;
    keep_parts(s, series, turn);
    series->allocated_s += turn->allocated_s;
    series->used_s += turn->used_s;
    series->seconds += turn->seconds;
}

static int run_all(struct savings *s, enum savings_setting setting, uint32_t alternation)
{
    struct turn *turn = turn_create(s, setting == SAVINGS_SHARED ? &s->shared : &s->dedicated);
    if (!turn)
        return -ENOMEM;
    turn->jobs_looks = LOOKS_FOR_JOBS;
    turn_all(turn);
    int r = run(s, turn);
    if (r == 0) {
        keep(s, setting, turn);
        report_turn(s, setting, alternation, turn);
    }
    free(turn);
    return r;
}

/* Corrects the measured period of a job that ran alone. In the longer stays with dedicated and
 * shared lanes the job has other random step times. The effect of this difference is computed from
 * the plan. */
static void take_out_draws(const struct plan *plan, size_t index, struct turn_job *seen)
{
    const struct plan_job *job = &plan->jobs[index];
    seen->period_ns += plan_drawn_ns(plan, job, plan_rounds(job, job->stay_ns)) -
                       plan_drawn_ns(plan, job, seen->rounds);
}

static int run_each_alone(struct savings *s, uint32_t alternation)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < s->plan.jobs_count; i++) {
        struct turn *turn = turn_create(s, &s->dedicated);
        if (!turn)
            return -ENOMEM;
        turn_add(turn, i, s->plan.alone_ns, 1);
        r = run(s, turn);
        if (r == 0) {
            take_out_draws(&s->plan, i, &turn->jobs[i]);
            keep(s, SAVINGS_ALONE, turn);
            report_turn(s, SAVINGS_ALONE, alternation, turn);
        }
        free(turn);
    }
    return r;
}

/* Runs the settings in turns. The first setting alternates, so a machine that becomes slower during
 * the run favours no setting. */
static int alternate(struct savings *s)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < s->alternations; i++) {
        bool is_even = i % 2 == 0;
        r = run_all(s, is_even ? SAVINGS_DEDICATED : SAVINGS_SHARED, i + 1);
        if (r == 0)
            r = run_all(s, is_even ? SAVINGS_SHARED : SAVINGS_DEDICATED, i + 1);
        if (r == 0 && i < s->alone_passes)
            r = run_each_alone(s, i + 1);
    }
    return r;
}

/* Starts both services. One service has separate lanes for all jobs, one for each worker; these
 * lanes time-share the cores of this machine. */
static int start_services(struct savings *s)
{
    char cores[256] = "", per_core[16];
    cpu_set_t allowed;
    size_t used = 0;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
        return -errno;
    uint32_t lanes = (uint32_t)s->plan.jobs_count * s->plan.workers;
    uint32_t most = (uint32_t)CPU_COUNT(&allowed);
    s->cores = lanes < most ? lanes : most;
    s->lanes_per_core = (lanes + s->cores - 1) / s->cores;
    for (uint32_t i = 0; i < s->cores && used < sizeof cores - 16; i++)
        used += (size_t)snprintf(cores + used, sizeof cores - used, "%s%d", i ? "," : "",
                                 process_core(i));
    snprintf(per_core, sizeof per_core, "%u", s->lanes_per_core);
    int r = service_start_as(&s->dedicated,
                             &(struct service_setting){cores, per_core, "dedicated", NULL});
    return r < 0 ? r
                 : service_start_as(&s->shared,
                                    &(struct service_setting){cores, per_core, s->policy, "1"});
}

int savings_run(struct savings *s)
{
    int r = start_services(s);
    if (r == 0)
        r = calibrate_scale(s);
    if (r == 0) {
        report_plan(s);
        r = profile(s);
    }
    if (r == 0)
        r = alternate(s);
    if (r == 0 && s->report)
        look_at_events(&s->shared, &s->events); /* if this fails, the page has no events */
    service_stop(&s->shared);
    service_stop(&s->dedicated);
    struct savings_sums sums;
    if (r == 0)
        report_end(s, &sums);
    return r == 0 && s->report ? savings_page(s, &sums, s->report) : r;
}
