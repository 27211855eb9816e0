/* Update rules of one instruction set. A block of gradients is summed. The rule is applied while
 * the block is in the first-level cache. The new parameters are stored in every target. The
 * compiler vectorizes these plain loops. Each operation is rounded separately, so the bits are the
 * same for every vector width (R5). Included by row_kernels.h only. */
#include "svc/reduce/reduce_fold.h"

/* One block of the state. `parameters` and `moment`: values before the step. `new_parameters` and
 * `new_moment`: values after the step. */
struct rule_block {
    const float *gradient, *parameters, *moment[UPDATE_MOMENTS_MAX];
    float *new_parameters, *new_moment[UPDATE_MOMENTS_MAX];
    size_t elements;
};

/* Declares the iterations of a loop independent: a new array is identical to the old one or does
 * not overlap it (R4). */
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

inline_always float decayed(const struct update_scalars *u, float gradient, float parameter)
{
    return u->weight_decay != 0 ? gradient + u->weight_decay * parameter : gradient;
}

/* Scalars and pointers are copied to local variables, because the compiler cannot know that the
 * arrays do not overlap the scalars. */
static void apply_sgd(const struct update_scalars *scalars, const struct rule_block *block)
{
    const struct update_scalars u = *scalars;
    const struct rule_block b = *block;
    INDEPENDENT
    for (size_t i = 0; i < b.elements; i++)
        b.new_parameters[i] =
            b.parameters[i] - u.rate * decayed(&u, b.gradient[i], b.parameters[i]);
}

inline_always void apply_any_momentum(const struct update_scalars *scalars,
                                      const struct rule_block *block, const bool looks_ahead)
{
    const struct update_scalars u = *scalars;
    const struct rule_block b = *block;
    INDEPENDENT
    for (size_t i = 0; i < b.elements; i++) {
        float gradient = decayed(&u, b.gradient[i], b.parameters[i]);
        float moment = u.momentum * b.moment[0][i] + u.taken * gradient;
        float step = looks_ahead ? gradient + u.momentum * moment : moment;
        b.new_moment[0][i] = moment;
        b.new_parameters[i] = b.parameters[i] - u.rate * step;
    }
}
static void apply_momentum(const struct update_scalars *u, const struct rule_block *b)
{
    apply_any_momentum(u, b, false);
}
static void apply_nesterov(const struct update_scalars *u, const struct rule_block *b)
{
    apply_any_momentum(u, b, true);
}

inline_always void apply_any_adam(const struct update_scalars *scalars,
                                  const struct rule_block *block, const bool shrinks)
{
    const struct update_scalars u = *scalars;
    const struct rule_block b = *block;
    INDEPENDENT
    for (size_t i = 0; i < b.elements; i++) {
        float parameter = b.parameters[i];
        float gradient = shrinks ? b.gradient[i] : decayed(&u, b.gradient[i], parameter);
        float moment1 = b.moment[0][i] * u.beta1 + u.taken1 * gradient;
        float moment2 = b.moment[1][i] * u.beta2 + u.taken2 * gradient * gradient;
        float scale = __builtin_sqrtf(moment2) / u.correction2_root + u.epsilon;
        float kept = shrinks ? parameter * u.shrink : parameter;
        b.new_moment[0][i] = moment1;
        b.new_moment[1][i] = moment2;
        b.new_parameters[i] = kept - u.adam_rate * moment1 / scale;
    }
}
static void apply_adam(const struct update_scalars *u, const struct rule_block *b)
{
    apply_any_adam(u, b, false);
}
static void apply_adamw(const struct update_scalars *u, const struct rule_block *b)
{
    apply_any_adam(u, b, true);
}

/* Constants of one kernel. */
struct rule {
    /* functions that sum the gradients to f32, without and with weights */
    void (*sum)(const struct reduce_pass *pass);
    void (*sum_weighted)(const struct reduce_pass *pass);
    void (*apply)(const struct update_scalars *u, const struct rule_block *b);
    void (*store)(void *at, vec v);
    size_t source_bytes, target_bytes; /* bytes of an element */
    int moments;
};

inline_always void sum_block(const struct rule *r, const struct reduce_pass *p, size_t at,
                             size_t elements, float *ret_gradient)
{
    struct reduce_pass block = *p;
    const void *sources[REDUCE_SOURCES_MAX] = {NULL};
    void *target = ret_gradient;
    for (int s = 0; s < p->sources_count; s++)
        sources[s] = element(p->sources[s], at, r->source_bytes);
    block.targets = &target;
    block.targets_count = 1;
    block.streams = false;
    block.sources = sources;
    block.partial = p->partial ? element(p->partial, at, sizeof(float)) : NULL;
    block.elements = elements;
    if (p->weights)
        r->sum_weighted(&block);
    else
        r->sum(&block);
}

inline_always struct rule_block block_of(const struct update_state *state, size_t at,
                                         size_t elements, const float *gradient, int moments,
                                         bool is_first)
{
    static const float no_moments[BLOCK_ELEMENTS];
    struct rule_block b = {.gradient = gradient,
                           .parameters = state->parameters + at,
                           .new_parameters = state->ret_parameters + at,
                           .elements = elements};
    for (int m = 0; m < moments; m++) {
        b.moment[m] = is_first ? no_moments : state->moments[m] + at;
        b.new_moment[m] = state->ret_moments[m] + at;
    }
    return b;
}

/* Stores parameters from a local block, because a vector may be longer than the remaining
 * elements. */
inline_always void store_parameters(const struct rule *r, const struct reduce_pass *p, size_t at,
                                    const struct rule_block *b)
{
    char narrow[BLOCK_ELEMENTS * sizeof(float)];
    float wide[BLOCK_ELEMENTS];
    const size_t step = VECTOR_BYTES / sizeof(float);
    memcpy(wide, b->new_parameters, b->elements * sizeof(float));
    memset(wide + b->elements, 0, (-b->elements % step) * sizeof(float));
    for (size_t i = 0; i < b->elements; i += step)
        r->store(narrow + i * r->target_bytes, load_whole(wide + i));
    for (int t = 0; t < p->targets_count; t++)
        memcpy((char *)p->targets[t] + at * r->target_bytes, narrow, b->elements * r->target_bytes);
}

inline_always void update(const struct reduce_pass *p, const struct update_settings *settings,
                          uint64_t step, const struct update_state *state, const struct rule r)
{
    const struct update_scalars scalars = update_scalars(settings, step);
    float gradient[BLOCK_ELEMENTS];
    for (size_t at = 0; at < p->elements; at += BLOCK_ELEMENTS) {
        size_t left = p->elements - at;
        size_t elements = left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS;
        struct rule_block b = block_of(state, at, elements, gradient, r.moments, step <= 1);
        sum_block(&r, p, at, elements, gradient);
        r.apply(&scalars, &b);
        store_parameters(&r, p, at, &b);
    }
}

/* Defines a kernel. Arguments: rule, number of moments, dtypes of source and target, bytes of an
 * element of each dtype. */
#define UPDATE(name, count, from, to, from_bytes, to_bytes)                                     \
    static void name##_##from##_##to(const struct reduce_pass *p,                               \
                                     const struct update_settings *settings, uint64_t step,     \
                                     const struct update_state *state)                          \
    {                                                                                           \
        update(p, settings, step, state,                                                        \
               (struct rule){sum_##from##_f32, weighted_##from##_f32, apply_##name, store_##to, \
                             from_bytes, to_bytes, count});                                     \
    }
#define UPDATES_OF(name, count)           \
    UPDATE(name, count, f32, f32, 4, 4)   \
    UPDATE(name, count, f16, f16, 2, 2)   \
    UPDATE(name, count, f16, f32, 2, 4)   \
    UPDATE(name, count, bf16, bf16, 2, 2) \
    UPDATE(name, count, bf16, f32, 2, 4)
UPDATES_OF(sgd, 0)
UPDATES_OF(momentum, 1)
UPDATES_OF(nesterov, 1)
UPDATES_OF(adam, 2)
UPDATES_OF(adamw, 2)
