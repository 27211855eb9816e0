/* Table of update rules: their moments, their settings, and the coefficients of a step.
 * reduce_rules.h changes the arrays. */
#include "svc/reduce/update.h"

#include "svc/reduce/internal.h"

#include <math.h>

static const struct {
    const char *name;
    int moments;
    bool has_momentum, has_betas;
} rules[UPDATE_RULES] = {
    [UPDATE_SGD] = {"sgd", 0, false, false},
    [UPDATE_MOMENTUM] = {"momentum", 1, true, false},
    [UPDATE_NESTEROV] = {"nesterov", 1, true, false},
    [UPDATE_ADAM] = {"adam", 2, false, true},
    [UPDATE_ADAMW] = {"adamw", 2, false, true},
};

static bool is_known(unsigned rule) { return rule > 0 && rule < UPDATE_RULES; }

update_fn update_pick(enum reduce_set set, enum update_rule rule, enum reduce_dtype from,
                      enum reduce_dtype to)
{
    const struct reduce_kernels *kernels = reduce_kernels_of(set);
    int width = reduce_width_of(from, to);
    if (!kernels || width < 0 || !is_known((unsigned)rule))
        return NULL;
    return kernels->update[rule][from][width];
}

int update_moments(unsigned rule) { return is_known(rule) ? rules[rule].moments : -1; }

const char *update_name(unsigned rule) { return is_known(rule) ? rules[rule].name : "?"; }

bool update_is_within(double value, double least, double below)
{
    return value >= least && value < below;
}

const char *update_wrong(unsigned rule, const struct update_settings *s)
{
    if (!is_known(rule))
        return "rule";
    if (!update_is_within(s->rate, 0, INFINITY))
        return "rate";
    if (!update_is_within(s->weight_decay, 0, INFINITY))
        return "weight_decay";
    if (rules[rule].has_momentum && !update_is_within(s->momentum, 0, INFINITY))
        return "momentum";
    if (rules[rule].has_momentum &&
        (!isfinite(s->dampening) || (rule == UPDATE_NESTEROV && s->dampening != 0)))
        return "dampening";
    if (rules[rule].has_betas && !update_is_within(s->beta1, 0, 1))
        return "beta1";
    if (rules[rule].has_betas && !update_is_within(s->beta2, 0, 1))
        return "beta2";
    if (rules[rule].has_betas && !update_is_within(s->epsilon, 0, INFINITY))
        return "epsilon";
    return NULL;
}

double update_power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            result *= base;
        base *= base;
    }
    return result;
}

struct update_scalars update_scalars(const struct update_settings *s, uint64_t step)
{
    double correction1 = 1 - update_power(s->beta1, step),
           correction2 = 1 - update_power(s->beta2, step);
    return (struct update_scalars){.rate = (float)s->rate,
                                   .weight_decay = (float)s->weight_decay,
                                   .shrink = (float)(1 - s->rate * s->weight_decay),
                                   .momentum = (float)s->momentum,
                                   .taken = (float)(step <= 1 ? 1 : 1 - s->dampening),
                                   .beta1 = (float)s->beta1,
                                   .beta2 = (float)s->beta2,
                                   .taken1 = (float)(1 - s->beta1),
                                   .taken2 = (float)(1 - s->beta2),
                                   .adam_rate = (float)(s->rate / correction1),
                                   .correction2_root = (float)sqrt(correction2),
                                   .epsilon = (float)s->epsilon};
}
