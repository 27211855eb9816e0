/* Applies an update rule to recorded gradients, for test_update_rules.py. The first line of the
 * input is
 *
 *   SET RULE STEPS WORKERS ELEMENTS rate weight_decay momentum dampening beta1 beta2 epsilon
 *
 * The parameters follow, then the gradients of all workers in each step, as f32. Writes the final
 * parameters. */
#include "svc/reduce/update.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct replay {
    enum reduce_set set;
    enum update_rule rule;
    unsigned steps, workers;
    size_t elements;
    struct update_settings settings;
};

static enum update_rule rule_named(const char *name)
{
    for (unsigned rule = 1; rule < UPDATE_RULES; rule++)
        if (strcmp(update_name(rule), name) == 0)
            return (enum update_rule)rule;
    return (enum update_rule)0;
}

static bool read_order(struct replay *r)
{
    char set[16], rule[16];
    struct update_settings *s = &r->settings;
    int found = scanf("%15s %15s %u %u %zu %lf %lf %lf %lf %lf %lf %lf", set, rule, &r->steps,
                      &r->workers, &r->elements, &s->rate, &s->weight_decay, &s->momentum,
                      &s->dampening, &s->beta1, &s->beta2, &s->epsilon);
    if (found != 12 || getchar() != '\n' || reduce_set_find(set, &r->set) < 0)
        return false;
    r->rule = rule_named(rule);
    return !update_wrong(r->rule, s) && r->workers >= 1 && r->workers <= REDUCE_SOURCES_MAX;
}

static float *read_floats(size_t count)
{
    float *values = calloc(count, sizeof *values);
    if (!values || fread(values, sizeof *values, count, stdin) != count)
        exit(2);
    return values;
}

/* Two copies of the state change roles with each step, as in a lane. */
static void step(const struct replay *r, unsigned number, float *state[2][3])
{
    float **before = state[number % 2], **after = state[1 - number % 2];
    float *gradients = read_floats(r->workers * r->elements);
    float *pushed = calloc(r->elements + 1, sizeof *pushed);
    const void *sources[REDUCE_SOURCES_MAX];
    for (unsigned w = 0; w < r->workers; w++)
        sources[w] = gradients + w * r->elements;
    const struct reduce_pass sums = {.targets = (void *const[]){pushed},
                                     .targets_count = 1,
                                     .sources = sources,
                                     .sources_count = (int)r->workers,
                                     .elements = r->elements,
                                     .divisor = r->workers};
    const struct update_state update = {.parameters = before[0],
                                        .moments = {before[1], before[2]},
                                        .ret_parameters = after[0],
                                        .ret_moments = {after[1], after[2]}};
    update_pick(r->set, r->rule, REDUCE_F32, REDUCE_F32)(&sums, &r->settings, number, &update);
    if (memcmp(pushed, after[0], r->elements * sizeof *pushed) != 0)
        exit(3); /* workers must receive the stored parameters */
    free(gradients);
    free(pushed);
}

int main(void)
{
    struct replay r = {0};
    float *state[2][3];
    if (!read_order(&r))
        return 2;
    for (int i = 0; i < 6; i++)
        state[i / 3][i % 3] =
            i == 3 ? read_floats(r.elements) : calloc(r.elements + 1, sizeof(float));
    for (unsigned number = 1; number <= r.steps; number++)
        step(&r, number, state);
    fwrite(state[1 - r.steps % 2][0], sizeof(float), r.elements, stdout);
    for (int i = 0; i < 6; i++)
        free(state[i / 3][i % 3]);
    return 0;
}
