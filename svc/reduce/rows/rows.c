/* Table of row rules: their moments, their settings, and the coefficients of a clock. row_kernels.h
 * changes the rows. */
#include "svc/reduce/rows/rows.h"

#include "svc/reduce/internal.h"

#include <float.h>
#include <math.h>

static const struct {
    const char *name;
    uint32_t moments_a_value, moments_a_row;
    bool has_betas, has_epsilon, is_ftrl;
} row_rules[ROW_RULES] = {
    [ROW_SGD] = {"sgd", 0, 0, false, false, false},
    [ROW_ADAGRAD] = {"adagrad", 1, 0, false, true, false},
    [ROW_ADAGRAD_ONE] = {"adagrad-one", 0, 1, false, true, false},
    [ROW_ADAM] = {"adam", 2, 0, true, true, false},
    [ROW_FTRL] = {"ftrl", 2, 0, false, false, true},
};

static bool row_rule_is_known(unsigned rule) { return rule > 0 && rule < ROW_RULES; }

row_fn row_pick(enum reduce_set set, enum row_rule rule, enum reduce_dtype dtype)
{
    const struct reduce_kernels *kernels = reduce_kernels_of(set);
    if (!kernels || !row_rule_is_known((unsigned)rule) || (unsigned)dtype >= REDUCE_DTYPES)
        return NULL;
    return kernels->row[rule][dtype];
}

row_initial_fn row_initial_pick(enum reduce_set set, enum reduce_dtype dtype)
{
    const struct reduce_kernels *kernels = reduce_kernels_of(set);
    if (!kernels || (unsigned)dtype >= REDUCE_DTYPES)
        return NULL;
    return kernels->row_initial[dtype];
}

int row_moments(unsigned rule, uint32_t dim)
{
    if (!row_rule_is_known(rule) || dim > ROW_DIM_MAX)
        return -1;
    return (int)(row_rules[rule].moments_a_value * dim + row_rules[rule].moments_a_row);
}

const char *row_rule_name(unsigned rule)
{
    return row_rule_is_known(rule) ? row_rules[rule].name : "?";
}

static bool row_is_amount(double value) { return update_is_within(value, 0, INFINITY); }

/* FTRL divides by the rate, so a rate of 0 is refused. */
static const char *row_wrong_ftrl(const struct row_settings *s)
{
    if ((float)s->rate <= 0)
        return "rate";
    if (!row_is_amount(s->beta))
        return "beta";
    if (!row_is_amount(s->l1))
        return "l1";
    return row_is_amount(s->l2) ? NULL : "l2";
}

const char *row_wrong(unsigned rule, const struct row_settings *s)
{
    if (!row_rule_is_known(rule))
        return "rule";
    if (!row_is_amount(s->rate))
        return "rate";
    if (row_rules[rule].is_ftrl)
        return row_wrong_ftrl(s);
    if (!row_is_amount(s->weight_decay))
        return "weight_decay";
    if (row_rules[rule].has_betas && !update_is_within(s->beta1, 0, 1))
        return "beta1";
    if (row_rules[rule].has_betas && !update_is_within(s->beta2, 0, 1))
        return "beta2";
    if (row_rules[rule].has_epsilon && !row_is_amount(s->epsilon))
        return "epsilon";
    return NULL;
}

struct row_step row_step(const struct row_settings *s, uint64_t step, uint32_t divisor,
                         bool accepts_nonfinite)
{
    double correction1 = 1 - update_power(s->beta1, step);
    double correction2 = 1 - update_power(s->beta2, step);
    return (struct row_step){.divisor = divisor > 1 ? (float)divisor : 1,
                             .rate = (float)s->rate,
                             .weight_decay = (float)s->weight_decay,
                             .epsilon = (float)s->epsilon,
                             .taken1 = (float)(1 - s->beta1),
                             .taken2 = (float)(1 - s->beta2),
                             .adam_rate = (float)(s->rate * sqrt(correction2) / correction1),
                             .beta = (float)s->beta,
                             .l1 = (float)s->l1,
                             .l2 = (float)s->l2,
                             .accepts_nonfinite = accepts_nonfinite};
}

const char *row_initial_wrong(const struct row_initial *initial)
{
    bool is_width = initial->kind == ROW_UNIFORM || initial->kind == ROW_NORMAL;
    if ((unsigned)initial->kind >= ROW_INITIAL_KINDS)
        return "kind";
    if (initial->kind == ROW_ZEROS)
        return NULL;
    return update_is_within(is_width ? initial->value : fabs(initial->value), 0, FLT_MAX / 8)
               ? NULL
               : "value";
}
