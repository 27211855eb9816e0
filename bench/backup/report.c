/* Prints rows, the table of ratios, figures with bars, and checks. Must never leave out a run that
 * misses its target: such a run counts with the grid's time_unreached. */
#include "bench/backup/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- rows --- */

static void print_row(const struct study *study, const struct study_row *row, size_t rule,
                      size_t seed, size_t best)
{
    const struct grid *g = study->grid;
    const struct virtual_result *result = study_result(study, row, rule, seed);
    double seconds = result->reached[row->target];
    printf("{\"rule\": \"%s\", \"times\": \"%s\", \"problem\": \"%s\", \"straggler\": \"%s\", "
           "\"seed\": %llu, \"target\": %g, \"seconds\": ",
           g->rules[rule].name, g->times[row->times].name, g->problems[row->problem].name,
           grid_straggler_name(g->stragglers[row->straggler]), (unsigned long long)g->seeds[seed],
           g->problems[row->problem].targets[row->target]);
    if (seconds >= 0)
        printf("%.3f", seconds);
    else
        printf("null");
    printf(", \"rounds\": %u, \"k_mean\": %.3f, \"dropped\": %.4f, \"absence\": %u, "
           "\"best_static\": ",
           result->rounds, result->k_mean, result->dropped, result->absence);
    if (best == STUDY_ALL)
        printf("null, \"ratio\": null");
    else
        printf("%u, \"ratio\": %.4f", g->rules[best].k,
               study_time(study, row, rule, seed) / study_time(study, row, best, seed));
    printf(", \"decide_ns\": %.0f}\n", result->decide_ns);
}

static void print_row_of_all(void *data, const struct study_row *row)
{
    const struct study *study = data;
    size_t best = study_best_static(study, row);
    for (size_t rule = 0; rule < study->grid->rules_count; rule++)
        for (size_t seed = 0; seed < study->grid->seeds_count; seed++)
            print_row(study, row, rule, seed, best);
}

void report_rows(const struct study *study)
{
    study_each_row(study, print_row_of_all, (void *)study);
}

/* --- the table --- */

static void print_times(const struct study *study, size_t rule, size_t target)
{
    for (size_t i = 0; i < study->grid->times_count; i++)
        printf(" %6.2f", study_cell_of(study, i, target, rule).mean);
}

void report_table(const struct study *study, bool is_deepest)
{
    const struct grid *g = study->grid;
    size_t target = is_deepest ? GRID_TARGETS - 1 : STUDY_ALL;
    printf("Time to the target divided by the time of the row's best static k: geometric "
           "mean\n\n%-20s",
           "rule");
    for (size_t i = 0; i < g->times_count; i++)
        printf(" %6.6s", g->times[i].name);
    printf(" %6s %6s %6s\n", "all", "p90", "missed");
    for (size_t rule = 0; rule < g->rules_count; rule++) {
        struct study_cell all = study_cell_of(study, STUDY_ALL, target, rule);
        printf("%-20s", g->rules[rule].name);
        print_times(study, rule, target);
        printf(" %6.2f %6.2f %6zu\n", all.mean, all.p90, all.missed);
    }
    printf("\n");
}

/* --- bars --- */

struct bar {
    const char *name;
    double value, most;
};

static double mean_of(const struct study *study, size_t times, size_t target, const char *rule)
{
    size_t at = study_find_rule(study, rule);
    return at == STUDY_ALL ? NAN : study_cell_of(study, times, target, at).mean;
}

static size_t times_of(const struct study *study, const char *name)
{
    const struct grid_times *times = grid_find_times(study->grid, name);
    return times ? (size_t)(times - study->grid->times) : study->grid->times_count;
}

/* Each rule with a fixed k has a mean over the whole grid. Returns the smallest of these means. */
static double best_single(const struct study *study)
{
    double least = NAN;
    for (size_t i = 0; i < study->grid->rules_count; i++) {
        const struct grid_rule *rule = &study->grid->rules[i];
        double mean = study_cell_of(study, STUDY_ALL, STUDY_ALL, i).mean;
        if (rule->rule == BACKUP_STATIC && !rule->has_second && !(mean >= least))
            least = mean;
    }
    return least;
}

static size_t whole_bars(const struct study *study, struct bar *ret_bars)
{
    const char *own = "auto + second";
    char all[GRID_NAME_BYTES];
    size_t rule = study_find_rule(study, own), calm = times_of(study, "calm"), count = 0;
    double mean = mean_of(study, STUDY_ALL, STUDY_ALL, own);
    snprintf(all, sizeof all, "static:%u", study->grid->workers);
    ret_bars[count++] = (struct bar){"over_best_static", mean, 1.15};
    ret_bars[count++] = (struct bar){
        "over_best_static_p90",
        rule == STUDY_ALL ? NAN : study_cell_of(study, STUDY_ALL, STUDY_ALL, rule).p90, 1.4};
    ret_bars[count++] = (struct bar){"over_best_single_k", mean / best_single(study), 0.95};
    ret_bars[count++] =
        (struct bar){"over_all", mean / mean_of(study, STUDY_ALL, STUDY_ALL, all), 0.55};
    ret_bars[count++] =
        (struct bar){"over_dbw", mean / mean_of(study, STUDY_ALL, STUDY_ALL, "dbw"), 0.6};
    ret_bars[count++] = (struct bar){
        "calm_over_all",
        mean_of(study, calm, STUDY_ALL, own) / mean_of(study, calm, STUDY_ALL, all), 1.02};
    return count;
}

static size_t fast_bars(const struct study *study, struct bar *ret_bars)
{
    size_t deepest = GRID_TARGETS - 1;
    ret_bars[0] = (struct bar){
        "half_static_second_over_best_static",
        mean_of(study, times_of(study, "half x5 at 80"), deepest, "static:16 + second"), 0.6};
    ret_bars[1] = (struct bar){
        "drift_auto_second_over_best_static",
        mean_of(study, times_of(study, "drift 0-12 x5"), deepest, "auto + second"), 0.65};
    return 2;
}

static void print_bar(const struct bar *bar, const char *before, bool is_whole, bool is_json)
{
    if (is_json && isfinite(bar->value))
        printf("%s\"%s\": %.4f", before, bar->name, bar->value);
    else if (is_json)
        printf("%s\"%s\": null", before, bar->name);
    else if (!is_whole)
        printf("%-38s %8.3f\n", bar->name, bar->value);
    else
        printf("%-38s %8.3f  bar %6.2f  %s\n", bar->name, bar->value, bar->most,
               !isfinite(bar->value)     ? "not measured"
               : bar->value <= bar->most ? "met"
                                         : "missed");
}

void report_bars(const struct study *study, const struct report_kind *kind,
                 const struct decisions decisions[2])
{
    struct bar bars[10];
    size_t count = kind->is_fast_rate ? fast_bars(study, bars) : whole_bars(study, bars);
    bars[count++] = (struct bar){"decide_us_64", decisions[0].mean_ns / 1000, 20};
    bars[count++] = (struct bar){"decide_us_64_second", decisions[1].mean_ns / 1000, 20};
    for (size_t i = 0; i < count; i++)
        print_bar(&bars[i], i > 0 ? ", " : "{", kind->is_whole, kind->is_json);
    if (kind->is_json)
        printf("}\n");
}

/* --- checks --- */

bool report_equals(const struct grid_check *check, const struct virtual_result *result)
{
    /* If a run ends at its last target, its last round is not counted. */
    uint32_t last = result->reached[GRID_TARGETS - 1] >= 0 ? 1 : 0;
    if (result->rounds - last != check->rounds || fabs(result->k_mean - check->k_mean) > 0.00501)
        return false;
    for (int i = 0; i < GRID_TARGETS; i++)
        if (fabs(result->reached[i] - check->reached[i]) > 0.000501)
            return false;
    return true;
}

static void print_outcome(const char *name, uint32_t rounds, double k_mean, const double *reached)
{
    printf("  %-9s rounds %5u, mean k %5.2f, times %9.3f %9.3f %9.3f %9.3f\n", name, rounds, k_mean,
           reached[0], reached[1], reached[2], reached[3]);
}

/* Returns whether the run has the expected result. */
static int run_check(const struct study *study, const struct grid_check *check)
{
    const struct grid *g = study->grid;
    struct grid_rule rule;
    struct virtual_result result;
    struct virtual_setting setting = {.grid = g,
                                      .problem = grid_find_problem(g, check->problem),
                                      .times = grid_find_times(g, check->times),
                                      .rule = &rule,
                                      .straggler = check->straggler,
                                      .seed = g->check_seed,
                                      .absence = study->absence,
                                      .digits = study->digits,
                                      .jitter = study->jitter};
    printf("%s | %s | %s | %s: ", check->problem, check->times,
           grid_straggler_name(check->straggler), check->rule);
    if (grid_rule_parse(check->rule, &rule) < 0) {
        printf("no such rule\n");
        return -EINVAL;
    }
    int error = virtual_run(&setting, &result);
    if (error < 0)
        return error;
    bool equal = report_equals(check, &result);
    printf("%s\n", equal ? "equal" : rule.rule == BACKUP_STATIC ? "different" : "drifted");
    if (!equal) {
        print_outcome("expected", check->rounds, check->k_mean, check->reached);
        print_outcome("measured", result.rounds, result.k_mean, result.reached);
    }
    return equal || rule.rule != BACKUP_STATIC || rule.has_second;
}

int report_checks(const struct study *study, bool are_digits_read)
{
    int different = 0;
    for (size_t i = 0; i < study->grid->checks_count; i++) {
        const struct grid_check *check = &study->grid->checks[i];
        const struct grid_problem *problem = grid_find_problem(study->grid, check->problem);
        if (!problem || !grid_find_times(study->grid, check->times) ||
            (problem->kind != PROBLEM_QUADRATIC && !are_digits_read))
            continue;
        int outcome = run_check(study, check);
        if (outcome < 0)
            return outcome;
        different += !outcome;
    }
    return different;
}
