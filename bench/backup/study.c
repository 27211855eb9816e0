/* Owns the results of a grid. Must never compare times of different seeds. */
#include "bench/backup/study.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t result_at(const struct grid *g, const struct study_row *row, size_t rule, size_t seed)
{
    size_t at = row->problem * g->times_count + row->times;
    at = at * g->stragglers_count + row->straggler;
    return (at * g->rules_count + rule) * g->seeds_count + seed;
}

const struct virtual_result *study_result(const struct study *study, const struct study_row *row,
                                          size_t rule, size_t seed)
{
    return &study->results[result_at(study->grid, row, rule, seed)];
}

double study_time(const struct study *study, const struct study_row *row, size_t rule, size_t seed)
{
    double time = study_result(study, row, rule, seed)->reached[row->target];
    return time >= 0 ? time : study->grid->time_unreached;
}

size_t study_find_rule(const struct study *study, const char *name)
{
    for (size_t i = 0; i < study->grid->rules_count; i++)
        if (strcmp(study->grid->rules[i].name, name) == 0)
            return i;
    return STUDY_ALL;
}

void study_each_row(const struct study *study,
                    void (*each)(void *data, const struct study_row *row), void *data)
{
    const struct grid *g = study->grid;
    struct study_row row;
    for (row.problem = 0; row.problem < g->problems_count; row.problem++)
        for (row.times = 0; row.times < g->times_count; row.times++)
            for (row.straggler = 0; row.straggler < g->stragglers_count; row.straggler++)
                for (row.target = 0; row.target < GRID_TARGETS; row.target++)
                    each(data, &row);
}

/* --- runs --- */

static int study_run_row(struct study *study, const struct study_row *row)
{
    const struct grid *g = study->grid;
    int error = 0;
    for (size_t rule = 0; rule < g->rules_count; rule++)
        for (size_t seed = 0; seed < g->seeds_count && error == 0; seed++) {
            const struct virtual_setting setting = {.grid = g,
                                                    .problem = &g->problems[row->problem],
                                                    .times = &g->times[row->times],
                                                    .rule = &g->rules[rule],
                                                    .straggler = g->stragglers[row->straggler],
                                                    .seed = g->seeds[seed],
                                                    .absence = study->absence,
                                                    .digits = study->digits,
                                                    .jitter = study->jitter};
            error = virtual_run(&setting, &study->results[result_at(g, row, rule, seed)]);
        }
    return error;
}

int study_run(struct study *study)
{
    const struct grid *g = study->grid;
    size_t count = g->problems_count * g->times_count * g->stragglers_count;
    int error = 0;
    study->results = calloc(count * g->rules_count * g->seeds_count + 1, sizeof *study->results);
    if (!study->results)
        return -ENOMEM;
    for (size_t i = 0; i < count && error == 0; i++) {
        struct study_row row = {.straggler = i % g->stragglers_count,
                                .times = i / g->stragglers_count % g->times_count,
                                .problem = i / g->stragglers_count / g->times_count};
        error = study_run_row(study, &row);
    }
    return error;
}

void study_fini(struct study *study)
{
    free(study->results);
    study->results = NULL;
}

/* --- comparison --- */

static bool is_static(const struct grid_rule *rule)
{
    return rule->rule == BACKUP_STATIC && !rule->has_second;
}

size_t study_best_static(const struct study *study, const struct study_row *row)
{
    const struct grid *g = study->grid;
    size_t best = STUDY_ALL;
    double least = g->time_unreached * (double)g->seeds_count;
    for (size_t rule = 0; rule < g->rules_count; rule++) {
        double sum = 0;
        for (size_t seed = 0; seed < g->seeds_count && is_static(&g->rules[rule]); seed++)
            sum += study_time(study, row, rule, seed);
        if (is_static(&g->rules[rule]) && sum < least) {
            least = sum;
            best = rule;
        }
    }
    return best;
}

struct gather {
    const struct study *study;
    size_t times, target, rule;
    double *ratios;
    struct study_cell cell;
};

static void gather_row(void *data, const struct study_row *row)
{
    struct gather *g = data;
    size_t best = study_best_static(g->study, row);
    if ((g->times != STUDY_ALL && row->times != g->times) ||
        (g->target != STUDY_ALL && row->target != g->target) || best == STUDY_ALL)
        return;
    for (size_t seed = 0; seed < g->study->grid->seeds_count; seed++) {
        double ratio =
            study_time(g->study, row, g->rule, seed) / study_time(g->study, row, best, seed);
        g->cell.missed += study_result(g->study, row, g->rule, seed)->reached[row->target] < 0;
        g->cell.mean += log(ratio);
        g->ratios[g->cell.count++] = ratio;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the 90th percentile, interpolated between neighbours. */
static double percentile_90(const double *sorted, size_t count)
{
    double at = 0.9 * (double)(count - 1);
    size_t below = (size_t)at, above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

struct study_cell study_cell_of(const struct study *study, size_t times, size_t target, size_t rule)
{
    const struct grid *g = study->grid;
    size_t most =
        g->problems_count * g->times_count * g->stragglers_count * GRID_TARGETS * g->seeds_count;
    struct gather gather = {.study = study, .times = times, .target = target, .rule = rule};
    gather.ratios = calloc(most + 1, sizeof *gather.ratios);
    if (!gather.ratios)
        return (struct study_cell){.mean = NAN, .p90 = NAN};
    study_each_row(study, gather_row, &gather);
    struct study_cell cell = gather.cell;
    qsort(gather.ratios, cell.count, sizeof *gather.ratios, compare);
    cell.mean = cell.count > 0 ? exp(cell.mean / (double)cell.count) : NAN;
    cell.p90 = cell.count > 0 ? percentile_90(gather.ratios, cell.count) : NAN;
    free(gather.ratios);
    return cell;
}
