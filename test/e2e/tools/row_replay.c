/* Applies a row rule to recorded gradients, for test_row_rules.py. The first line of the input is
 *
 *   SET RULE STEPS ROWS DIM rate weight_decay beta1 beta2 epsilon
 *
 * The values of all rows follow, then each step: a count, this number of row numbers, and a
 * gradient for each row. All are 32-bit words. Writes the final values. */
#include "svc/reduce/rows/rows.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct replay {
    enum reduce_set set;
    enum row_rule rule;
    uint32_t steps, rows, dim;
    struct row_settings settings;
};

static enum row_rule rule_named(const char *name)
{
    for (unsigned rule = 1; rule < ROW_RULES; rule++)
        if (strcmp(row_rule_name(rule), name) == 0)
            return (enum row_rule)rule;
    return (enum row_rule)0;
}

static bool read_order(struct replay *r)
{
    char set[16], rule[16];
    struct row_settings *s = &r->settings;
    int found = scanf("%15s %15s %u %u %u %lf %lf %lf %lf %lf", set, rule, &r->steps, &r->rows,
                      &r->dim, &s->rate, &s->weight_decay, &s->beta1, &s->beta2, &s->epsilon);
    if (found != 10 || getchar() != '\n' || reduce_set_find(set, &r->set) < 0)
        return false;
    r->rule = rule_named(rule);
    return !row_wrong(r->rule, s) && r->dim >= 1 && r->dim <= ROW_DIM_MAX;
}

static void *read_words(size_t count)
{
    uint32_t *words = calloc(count + 1, sizeof *words);
    if (!words || fread(words, sizeof *words, count, stdin) != count)
        exit(2);
    return words;
}

static void step(const struct replay *r, uint64_t number, float *values, float *moments)
{
    const struct row_step coefficients = row_step(&r->settings, number, 1, false);
    size_t of_row = (size_t)row_moments(r->rule, r->dim);
    uint32_t *count = read_words(1), *chosen = read_words(*count);
    float *gradients = read_words((size_t)*count * r->dim);
    row_fn apply = row_pick(r->set, r->rule, REDUCE_F32);
    for (uint32_t i = 0; i < *count; i++)
        if (chosen[i] >= r->rows ||
            !apply(&coefficients, gradients + (size_t)i * r->dim, r->dim,
                   values + (size_t)chosen[i] * r->dim, moments + chosen[i] * of_row))
            exit(3);
    free(count);
    free(chosen);
    free(gradients);
}

int main(void)
{
    struct replay r = {0};
    if (!read_order(&r))
        return 2;
    float *values = read_words((size_t)r.rows * r.dim);
    float *moments = calloc((size_t)r.rows * (2 * r.dim + 1), sizeof *moments);
    if (!moments)
        return 2;
    for (uint64_t number = 1; number <= r.steps; number++)
        step(&r, number, values, moments);
    fwrite(values, sizeof *values, (size_t)r.rows * r.dim, stdout);
    free(values);
    free(moments);
    return 0;
}
