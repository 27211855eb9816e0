/* The built-in grids. Must never contain measured figures, except the results of the checks. */
#include "bench/backup/grid/grid.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "svc/base/text.h"

static const struct grid_problem problems[] = {
    {"quadratic", PROBLEM_QUADRATIC, 0.3, 4, 0, {0.5, 0.25, 0.15, 0.12}, {0}},
    {"quad quiet", PROBLEM_QUADRATIC, 0.3, 1, 0, {0.5, 0.25, 0.1, 0.05}, {0}},
    {"quad decay", PROBLEM_QUADRATIC, 0.3, 4, 0, {0.5, 0.25, 0.12, 0.08}, {150, 300}},
    {"logistic", PROBLEM_SOFTMAX, 0.5, 0, 2, {1.2, 1.1, 1.05, 1.02}, {0}},
    {"mlp", PROBLEM_MLP, 0.3, 0, 4, {1.1, 1.0, 0.95, 0.9}, {0}},
};

static const struct grid_times times[] = {
    {"calm", TIMES_CALM, 1},
    {"jitter (PAI)", TIMES_JITTER, 1},
    {"1 + Exp(0.2)", TIMES_SHORT_TAIL, 1},
    {"0.3 + Exp(1)", TIMES_LONG_TAIL, 1},
    {"burst 5 % x10", TIMES_BURST, 10},
    {"half x5 at 80", TIMES_HALF, 5},
    {"drift 0-12 x5", TIMES_DRIFT, 5},
    {"one x5", TIMES_ONE, 5},
};

static const char *const rules[] = {
    "static:2",           "static:4",           "static:6",  "static:8", "static:10",
    "static:12",          "static:14",          "static:16", "auto",     "auto + second",
    "static:16 + second", "static:12 + second", "before",    "dbw",      "blind",
    "adasync:2",          "adasync:4",
};

/* Expected results, computed by an independent program. For the problems with digits, that program
 * used scikit-learn's digits. */
static const struct grid_check checks[] = {
    {"quadratic",
     "calm",
     "static:12",
     STRAGGLER_WAIT,
     464,
     12,
     {67.267, 141.869, 369.335, 481.174}},
    {"quadratic",
     "burst 5 % x10",
     "static:12",
     STRAGGLER_INTERRUPT,
     464,
     12,
     {74.591, 156.640, 409.648, 534.141}},
    {"quad quiet",
     "jitter (PAI)",
     "static:12",
     STRAGGLER_WAIT,
     384,
     12,
     {71.991, 126.999, 275.991, 479.124}},
    {"quad quiet",
     "half x5 at 80",
     "static:12",
     STRAGGLER_WAIT,
     384,
     12,
     {76.082, 334.080, 1084.766, 2099.701}},
    {"quad quiet",
     "drift 0-12 x5",
     "static:12",
     STRAGGLER_WAIT,
     384,
     12,
     {149.311, 282.778, 590.649, 1029.319}},
    {"quad quiet",
     "one x5",
     "static:12",
     STRAGGLER_INTERRUPT,
     384,
     12,
     {73.428, 130.750, 286.475, 497.561}},
    {"quad quiet",
     "1 + Exp(0.2)",
     "static:12",
     STRAGGLER_WAIT,
     384,
     12,
     {76.082, 135.702, 297.615, 516.935}},
    {"quad decay",
     "0.3 + Exp(1)",
     "static:12",
     STRAGGLER_WAIT,
     1432,
     12,
     {122.663, 269.688, 1034.674, 2771.973}},
    {"logistic",
     "0.3 + Exp(1)",
     "static:12",
     STRAGGLER_WAIT,
     324,
     12,
     {139.860, 245.857, 431.341, 625.968}},
    {"mlp",
     "0.3 + Exp(1)",
     "static:12",
     STRAGGLER_WAIT,
     888,
     12,
     {295.079, 750.936, 1146.653, 1727.101}},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void add_rules(struct grid *grid, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        grid_add_rule(grid, names[i]);
}

void grid_whole(struct grid *ret_grid)
{
    *ret_grid = (struct grid){.workers = 16,
                              .rounds_max = 5000,
                              .time_max = 4000,
                              .time_unreached = 8000,
                              .check_seed = 2,
                              .seeds = {1, 2, 3},
                              .seeds_count = 3,
                              .problems_count = COUNT(problems),
                              .times_count = COUNT(times),
                              .stragglers = {STRAGGLER_WAIT, STRAGGLER_INTERRUPT},
                              .stragglers_count = 2,
                              .checks_count = COUNT(checks)};
    memcpy(ret_grid->problems, problems, sizeof problems);
    memcpy(ret_grid->times, times, sizeof times);
    memcpy(ret_grid->checks, checks, sizeof checks);
    add_rules(ret_grid, rules, COUNT(rules));
}

void grid_fast_rate(struct grid *ret_grid)
{
    static const char *const names[] = {
        "static:2", "static:4",      "static:6",           "static:7",          "static:8",
        "static:9", "static:10",     "static:12",          "static:14",         "static:16",
        "auto",     "auto + second", "static:16 + second", "static:12 + second"};
    *ret_grid = (struct grid){
        .workers = 16,
        .rounds_max = 4000,
        .time_max = 4000,
        .time_unreached = 8000,
        .seeds = {11, 12, 13, 14, 15, 16},
        .seeds_count = 6,
        .problems = {{"rate 2", PROBLEM_SOFTMAX, 2, 0, 4, {1.2, 1.1, 1.05, 1.02}, {0}}},
        .problems_count = 1,
        .times = {times[TIMES_HALF],
                  {"half x10 at 80", TIMES_HALF, 10},
                  times[TIMES_DRIFT],
                  times[TIMES_CALM]},
        .times_count = 4,
        .stragglers = {STRAGGLER_WAIT},
        .stragglers_count = 1};
    add_rules(ret_grid, names, COUNT(names));
}

void grid_quick(struct grid *ret_grid)
{
    static const char *const names[] = {"static:4",      "static:10", "static:16", "auto",
                                        "auto + second", "dbw",       "all"};
    grid_whole(ret_grid);
    ret_grid->problems[0] = problems[1];
    ret_grid->problems[1] = problems[3];
    ret_grid->problems_count = 2;
    ret_grid->times[0] = times[TIMES_CALM];
    ret_grid->times[1] = times[TIMES_ONE];
    ret_grid->times_count = 2;
    ret_grid->seeds_count = 1;
    ret_grid->stragglers_count = 1;
    ret_grid->checks_count = 0;
    ret_grid->rounds_max = 800;
    ret_grid->rules_count = 0;
    add_rules(ret_grid, names, COUNT(names));
}

/* --- names --- */

static int base_rule_parse(const char *name, size_t length, struct grid_rule *ret_rule)
{
    char base[GRID_NAME_BYTES], *colon;
    uint64_t k = 0;
    snprintf(base, sizeof base, "%.*s", (int)length, name);
    colon = strchr(base, ':');
    if (colon && text_parse_u64(colon + 1, 1, GRID_WORKERS_MAX, &k) < 0)
        return -EINVAL;
    if (colon)
        *colon = 0;
    for (enum backup_rule rule = 0; rule < BACKUP_RULES; rule++)
        if (strcmp(base, backup_rule_name(rule)) == 0) {
            ret_rule->rule = rule;
            ret_rule->k = (uint32_t)k;
            return (rule == BACKUP_STATIC || rule == BACKUP_ADASYNC) == (k > 0) ? 0 : -EINVAL;
        }
    return -EINVAL;
}

int grid_rule_parse(const char *name, struct grid_rule *ret_rule)
{
    const char *second = strstr(name, " + second");
    struct grid_rule rule = {.has_second = second != NULL};
    size_t length = second ? (size_t)(second - name) : strlen(name);
    if (length >= sizeof rule.name || base_rule_parse(name, length, &rule) < 0 ||
        (second && strcmp(second, " + second") != 0) ||
        (second && rule.rule != BACKUP_AUTO && rule.rule != BACKUP_STATIC))
        return -EINVAL;
    snprintf(rule.name, sizeof rule.name, "%s", name);
    *ret_rule = rule;
    return 0;
}

int grid_add_rule(struct grid *grid, const char *name)
{
    struct grid_rule rule;
    int error = grid_rule_parse(name, &rule);
    if (error < 0)
        return error;
    for (size_t i = 0; i < grid->rules_count; i++)
        if (strcmp(grid->rules[i].name, rule.name) == 0)
            return 0;
    if (grid->rules_count == GRID_RULES_MAX)
        return -ENOBUFS;
    grid->rules[grid->rules_count++] = rule;
    return 0;
}

const char *grid_straggler_name(enum straggler straggler)
{
    return straggler == STRAGGLER_WAIT ? "wait" : "interrupt";
}

int grid_straggler_parse(const char *name, enum straggler *ret_straggler)
{
    for (enum straggler s = STRAGGLER_WAIT; s <= STRAGGLER_INTERRUPT; s++)
        if (strcmp(name, grid_straggler_name(s)) == 0) {
            *ret_straggler = s;
            return 0;
        }
    return -EINVAL;
}

const struct grid_problem *grid_find_problem(const struct grid *grid, const char *name)
{
    for (size_t i = 0; i < grid->problems_count; i++)
        if (strcmp(grid->problems[i].name, name) == 0)
            return &grid->problems[i];
    return NULL;
}

const struct grid_times *grid_find_times(const struct grid *grid, const char *name)
{
    for (size_t i = 0; i < grid->times_count; i++)
        if (strcmp(grid->times[i].name, name) == 0)
            return &grid->times[i];
    return NULL;
}
