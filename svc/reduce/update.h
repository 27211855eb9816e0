/* Update rules: compute new parameters from the sum of gradients, in the same pass. Pure.
 *
 * The formulas and their order are those of torch.optim in PyTorch 1.13 (sgd.py, adam.py, adamw.py,
 * functions _single_tensor_*; neither amsgrad nor maximize). Momentum: Polyak 1964. Nesterov's
 * momentum: Sutskever et al. 2013. Adam: Kingma and Ba 2015. AdamW: Loshchilov and Hutter 2019.
 * Parameters and moments are f32 for every dtype of gradients (R9). */
#ifndef GRADPOOL_REDUCE_UPDATE_H
#define GRADPOOL_REDUCE_UPDATE_H

#include "svc/reduce/reduce.h"

enum update_rule {
    UPDATE_SGD = 1,
    UPDATE_MOMENTUM = 2,
    UPDATE_NESTEROV = 3,
    UPDATE_ADAM = 4,  /* weight decay is added to the gradient */
    UPDATE_ADAMW = 5, /* weight decay shrinks the parameters */
};
#define UPDATE_RULES 6 /* the largest number plus one */
#define UPDATE_MOMENTS_MAX 2

/* Settings of one round. A rule ignores the settings that it does not use. */
struct update_settings {
    double rate, weight_decay;
    double momentum, dampening;   /* for MOMENTUM; for NESTEROV dampening is 0 */
    double beta1, beta2, epsilon; /* for ADAM and ADAMW */
};

/* Arrays of f32, as long as the sum. New arrays may be identical to the old ones. With separate
 * arrays a round can be repeated until its commit. */
struct update_state {
    const float *parameters, *moments[UPDATE_MOMENTS_MAX];
    float *ret_parameters, *ret_moments[UPDATE_MOMENTS_MAX];
};

/* Applies one update. `sums`: last pass over the gradients, whose targets receive the new
 * parameters. `step` counts from 1; in step 1 the old moments are not read and count as zero. The
 * settings must be valid (update_wrong()). Cost: one pass over the sources and the state. */
typedef void (*update_fn)(const struct reduce_pass *sums, const struct update_settings *settings,
                          uint64_t step, const struct update_state *state);

/* Returns the kernel from gradients of f32, f16 or bf16 to parameters of the same dtype or f32, or
 * NULL if there is none on this machine. */
update_fn update_pick(enum reduce_set set, enum update_rule rule, enum reduce_dtype from,
                      enum reduce_dtype to);

/* Returns the number of moments, or -1 if there is no such rule. `rule` may come unchecked from a
 * peer. */
int update_moments(unsigned rule);
/* Returns the name of the rule, such as "sgd", or "?" if it is unknown. */
const char *update_name(unsigned rule);
/* Returns the name of the first setting that is invalid for the rule, or NULL if all are valid. The
 * arguments may come unchecked from a peer. */
const char *update_wrong(unsigned rule, const struct update_settings *settings);

#endif
