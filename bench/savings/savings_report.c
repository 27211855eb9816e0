/* Prints measurements as text and JSON lines. Every printed figure must be computable from the
 * lines above. */
#include "bench/savings/savings_report.h"

#include "bench/savings/statistics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const uint32_t server_cores[] = {1, 2, 4}; /* cores of a dedicated server */

static void print_plan_json(const struct savings *s, double machine_load)
{
    const struct plan *p = &s->plan;
    printf("{\"plan\": {\"jobs\": %zu, \"workers\": %u, \"policy\": \"%s\", \"seed\": %llu, "
           "\"bytes_scale\": %.6f, \"time_scale\": %.6f, \"jitter\": %.4f, \"load\": %.3f, "
           "\"lane_ns_a_kib\": %.3f, \"cores\": %u, \"lanes\": %u, \"turn_s\": %.3f, "
           "\"alternations\": %u, \"machine_load\": %.2f}}\n",
           p->jobs_count, p->workers, s->policy, (unsigned long long)p->seed, p->bytes_scale,
           p->time_scale, p->jitter, s->load, s->lane_ns_a_byte * 1024, s->cores,
           s->cores * s->lanes_per_core, p->turn_ns / 1e9, s->alternations, machine_load);
}

static void print_plan(const struct savings *s, double machine_load)
{
    const struct plan *p = &s->plan;
    printf("%zu jobs of %u workers, policy %s, seed %llu. Scale: tensors x %.4f, step times x "
           "%.2f, jitter %.3f;\n%.2f cores of lane time are asked for when all are there (%.1f ns "
           "a KiB pushed, measured now); what was offered stands at the end.\n%u cores carry %u "
           "lanes, which time-share them. Turns of %.1f s, %u alternations; load of the machine "
           "%.2f.\n",
           p->jobs_count, p->workers, s->policy, (unsigned long long)p->seed, p->bytes_scale,
           p->time_scale, p->jitter, s->load, s->lane_ns_a_byte * 1024, s->cores,
           s->cores * s->lanes_per_core, p->turn_ns / 1e9, s->alternations, machine_load);
}

void report_plan(const struct savings *s)
{
    double load[1] = {0};
    (void)!getloadavg(load, 1);
    (s->is_json ? print_plan_json : print_plan)(s, load[0]);
    fflush(stdout);
}

/* Prints the allocated cores over time: one pair at the start and at each change. */
static void print_allocated(const struct turn *turn)
{
    const char *comma = "";
    for (size_t i = 0; i < turn->looks_count; i++) {
        const struct turn_look *look = &turn->looks[i];
        if (i > 0 && i + 1 < turn->looks_count && look->lanes == turn->looks[i - 1].lanes)
            continue;
        printf("%s[%.2f, %u]", comma, look->at_s, look->lanes);
        comma = ", ";
    }
}

static void print_periods(const struct turn *turn)
{
    const char *comma = "";
    for (size_t i = 0; i < turn->plan->jobs_count; i++) {
        const struct turn_job *job = &turn->jobs[i];
        if (!job->takes_part)
            continue;
        printf("%s{\"job\": \"%s\", \"period_ms\": %.4f, \"rounds\": %u, \"known\": %s}", comma,
               turn->plan->jobs[i].name, job->period_ns / 1e6, job->rounds,
               job->is_known ? "true" : "false");
        comma = ", ";
    }
}

void report_turn(const struct savings *s, enum savings_setting setting, uint32_t alternation,
                 const struct turn *turn)
{
    const char *name = savings_setting_name(setting);
    if (s->is_json) {
        printf("{\"turn\": \"%s\", \"alternation\": %u, \"seconds\": %.4f, "
               "\"allocated_core_s\": %.4f, \"used_core_s\": %.4f, \"offered_cores\": %.4f, "
               "\"busiest_lane\": %.4f, "
               "\"wrong\": %llu, \"allocated\": [",
               name, alternation, turn->seconds, turn->allocated_s, turn->used_s, turn->offered,
               turn->busiest, (unsigned long long)turn_wrong(turn));
        print_allocated(turn);
        printf("], \"jobs\": [");
        print_periods(turn);
        printf("]}\n");
    } else if (setting != SAVINGS_ALONE) {
        printf("%2u %-9s %5.1f s: %6.1f core-s allocated, at most %2u lanes; %5.2f core-s used, "
               "busiest lane %4.1f %%\n",
               alternation, name, turn->seconds, turn->allocated_s, turn->lanes_most, turn->used_s,
               100 * turn->busiest);
    }
    fflush(stdout);
}

#define NEAR 0.02

struct losses {
    /* Loss of the shared period, compared with the dedicated period and with the period alone. */
    double dedicated[PLAN_JOBS_MAX], alone[PLAN_JOBS_MAX];
    /* with_prediction: jobs with a prediction; near: jobs with a prediction within 2 points */
    size_t with_prediction, near;
};

static void print_interval(const struct savings *s, enum savings_setting setting,
                           const struct interval *period)
{
    const char *name = savings_setting_name(setting);
    double median = period->median / 1e6, low = period->low / 1e6, high = period->high / 1e6;
    if (s->is_json)
        printf("\"%s\": {\"median_ms\": %.4f, \"low_ms\": %.4f, \"high_ms\": %.4f, "
               "\"confidence\": %.4f}, ",
               name, median, low, high, period->confidence);
    else
        printf("  %s %8.2f [%.2f, %.2f]", name, median, low, high);
}

/* Returns the loss 1 - d / d': the part of the present round time d' that was lost compared with
 * d. */
static double loss(const struct interval *before, const struct interval *now)
{
    return 1 - before->median / now->median;
}

static void print_losses(const struct savings *s, double dedicated, double alone, double predicted)
{
    if (s->is_json) {
        printf("\"loss\": %.6f, \"loss_alone\": %.6f", dedicated, alone);
        if (!isnan(predicted))
            printf(", \"loss_predicted\": %.6f", predicted);
        printf("}\n");
        return;
    }
    printf("  lost %5.2f %%, against alone %5.2f %%, ", 100 * dedicated, 100 * alone);
    if (isnan(predicted))
        printf("no prediction\n");
    else
        printf("predicted %5.2f %%\n", 100 * predicted);
}

static void report_job(struct savings *s, size_t i, struct losses *losses,
                       struct savings_sums *sums)
{
    struct interval periods[SAVINGS_SETTINGS];
    double predicted = s->predicted[i].sum / s->predicted[i].turns; /* NAN for 0 turns */
    printf(s->is_json ? "{\"job\": \"%s\", " : "%-20s", s->plan.jobs[i].name);
    for (int setting = 0; setting < SAVINGS_SETTINGS; setting++) {
        struct savings_series *series = &s->series[setting];
        periods[setting] = statistics_interval(series->period_ns[i], series->periods[i]);
        print_interval(s, (enum savings_setting)setting, &periods[setting]);
        sums->periods_ns[i][setting] = periods[setting].median;
    }
    losses->dedicated[i] = loss(&periods[SAVINGS_DEDICATED], &periods[SAVINGS_SHARED]);
    losses->alone[i] = loss(&periods[SAVINGS_ALONE], &periods[SAVINGS_SHARED]);
    sums->losses[i] = losses->dedicated[i];
    losses->with_prediction += !isnan(predicted);
    losses->near += fabs(losses->dedicated[i] - predicted) <= NEAR; /* false for NAN */
    print_losses(s, losses->dedicated[i], losses->alone[i], predicted);
}

/* Prints and returns the part of the cores that sharing saves, compared with dedicated servers of
 * `cores` cores each. A dedicated server counts with all its cores, whatever its load. */
static double report_cores(const struct savings *s, uint32_t cores)
{
    const struct savings_series *dedicated = &s->series[SAVINGS_DEDICATED];
    const struct savings_series *shared = &s->series[SAVINGS_SHARED];
    double held_s = dedicated->allocated_s * cores;
    double saved = held_s > 0 ? 1 - shared->allocated_s / held_s : 0;
    if (s->is_json)
        printf("{\"cores_a_server\": %u, \"dedicated_core_s\": %.4f, \"shared_core_s\": %.4f, "
               "\"dedicated_used_core_s\": %.4f, \"shared_used_core_s\": %.4f, "
               "\"saved_fraction\": %.6f}\n",
               cores, held_s, shared->allocated_s, dedicated->used_s, shared->used_s, saved);
    else
        printf("%u cores a server: dedicated hold %.1f core-s, shared %.1f (used: %.2f, %.2f): "
               "%.3f saved\n",
               cores, held_s, shared->allocated_s, dedicated->used_s, shared->used_s, saved);
    return saved;
}

static void sum_up(struct savings *s, struct losses *losses, struct savings_sums *sums)
{
    struct savings_series *dedicated = &s->series[SAVINGS_DEDICATED];
    struct savings_series *shared = &s->series[SAVINGS_SHARED];
    size_t jobs = s->plan.jobs_count;
    sums->loss_mean = statistics_mean(losses->dedicated, jobs);
    sums->loss_p95 = statistics_quantile(losses->dedicated, jobs, 0.95);
    sums->loss_worst = statistics_quantile(losses->dedicated, jobs, 1);
    sums->loss_worst_alone = statistics_quantile(losses->alone, jobs, 1);
    sums->offered = statistics_interval(dedicated->offered, dedicated->turns).median;
    sums->predicted_near =
        losses->with_prediction ? (double)losses->near / (double)losses->with_prediction : NAN;
    sums->busiest = statistics_interval(shared->busiest, shared->turns).median;
}

static void print_last_json(const struct savings *s, const struct savings_sums *sums)
{
    printf("{\"cores_saved_fraction\": %.6f, \"loss_mean\": %.6f, \"loss_p95\": %.6f, "
           "\"loss_worst\": %.6f, \"loss_worst_alone\": %.6f, \"offered_cores\": %.6f, "
           "\"lane_busy_max\": %.6f, \"alternations\": %u, \"wrong\": %llu, "
           "\"checked_rounds\": %llu",
           sums->saved[0], sums->loss_mean, sums->loss_p95, sums->loss_worst,
           sums->loss_worst_alone, sums->offered, sums->busiest, s->alternations,
           (unsigned long long)s->wrong, (unsigned long long)s->checked_rounds);
    if (!isnan(sums->predicted_near))
        printf(", \"predicted_near_fraction\": %.6f", sums->predicted_near);
    printf("}\n");
}

static void print_last(const struct savings *s, const struct savings_sums *sums)
{
    printf("cores saved %.3f; lost: mean %.4f, p95 %.4f, worst %.4f, worst against alone %.4f\n"
           "asked for %.3f cores, offered %.3f, busiest shared lane %.3f; %u alternations; %llu "
           "elements wrong in %llu checked rounds; ",
           sums->saved[0], sums->loss_mean, sums->loss_p95, sums->loss_worst,
           sums->loss_worst_alone, s->load, sums->offered, sums->busiest, s->alternations,
           (unsigned long long)s->wrong, (unsigned long long)s->checked_rounds);
    if (isnan(sums->predicted_near))
        printf("no loss was predicted\n");
    else
        printf("predicted to 2 points: %.3f of the jobs\n", sums->predicted_near);
}

void report_end(struct savings *s, struct savings_sums *ret_sums)
{
    struct losses losses = {0};
    if (!s->is_json)
        printf("\nperiods in ms, median and interval; turns to profile: %u\n", s->profile_turns);
    for (size_t i = 0; i < s->plan.jobs_count; i++)
        report_job(s, i, &losses, ret_sums);
    for (size_t i = sizeof server_cores / sizeof *server_cores; i-- > 0;)
        ret_sums->saved[i] = report_cores(s, server_cores[i]);
    sum_up(s, &losses, ret_sums);
    (s->is_json ? print_last_json : print_last)(s, ret_sums);
}
