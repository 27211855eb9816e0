/* Tests the update rules. Every kernel of every instruction set is compared with the formulas,
 * element by element. test_update_torch.py compares with PyTorch. */
#include "svc/reduce/update.h"
#include "test/unit/reduce/reduce_reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROOM 2100
#define SOURCES 3

static const struct {
    enum reduce_dtype from, to;
} rows[] = {{REDUCE_F32, REDUCE_F32},
            {REDUCE_F16, REDUCE_F16},
            {REDUCE_F16, REDUCE_F32},
            {REDUCE_BF16, REDUCE_BF16},
            {REDUCE_BF16, REDUCE_F32}};
#define ROWS (sizeof rows / sizeof *rows)

/* Parameters, then moments. */
struct arrays {
    float parameters[ROOM], moments[UPDATE_MOMENTS_MAX][ROOM];
};
static struct arrays before, after, expected;
static float source_memory[SOURCES][ROOM], target_memory[2][ROOM], partial_memory[ROOM];

struct round {
    enum reduce_set set;
    enum update_rule rule;
    enum reduce_dtype from, to;
    struct update_settings settings;
    uint64_t step;
    size_t elements;
    bool has_partial, is_weighted;
};

/* Computes one element by the formulas. volatile prevents contraction and wider intermediate
 * values. */
static float expected_element(const struct round *r, float gradient, size_t i)
{
    const struct update_settings *s = &r->settings;
    volatile float g = gradient, p = before.parameters[i], scaled;
    bool is_adam = r->rule == UPDATE_ADAM || r->rule == UPDATE_ADAMW;
    if (s->weight_decay != 0 && r->rule != UPDATE_ADAMW) {
        scaled = (float)s->weight_decay * p;
        g = g + scaled;
    }
    if (is_adam) {
        volatile float m = r->step == 1 ? 0 : before.moments[0][i];
        volatile float v = r->step == 1 ? 0 : before.moments[1][i];
        double c1 = 1, c2 = 1;
        for (uint64_t t = 0; t < r->step; t++) {
            c1 *= s->beta1;
            c2 *= s->beta2;
        }
        m = m * (float)s->beta1;
        scaled = (float)(1 - s->beta1) * g;
        m = m + scaled;
        v = v * (float)s->beta2;
        scaled = (float)(1 - s->beta2) * g;
        scaled = scaled * g;
        v = v + scaled;
        expected.moments[0][i] = m;
        expected.moments[1][i] = v;
        volatile float scale = sqrtf(v);
        scale = scale / (float)sqrt(1 - c2);
        scale = scale + (float)s->epsilon;
        if (r->rule == UPDATE_ADAMW)
            p = p * (float)(1 - s->rate * s->weight_decay);
        scaled = (float)(s->rate / (1 - c1)) * m;
        scaled = scaled / scale;
        return p - scaled;
    }
    if (r->rule != UPDATE_SGD) {
        volatile float kept = (float)s->momentum * before.moments[0][i];
        volatile float taken = (float)(1 - s->dampening) * g;
        volatile float m = r->step == 1 ? 0 + g : kept + taken;
        expected.moments[0][i] = m;
        scaled = (float)s->momentum * m;
        g = r->rule == UPDATE_NESTEROV ? g + scaled : m;
    }
    scaled = (float)s->rate * g;
    return p - scaled;
}

static void any_moderate(enum reduce_dtype dtype, void *ret_element)
{
    float value = (float)ldexp((double)random() - (1 << 30), -31 - (int)(random() % 8));
    uint16_t half;
    if (dtype == REDUCE_F32) {
        memcpy(ret_element, &value, sizeof value);
    } else {
        half = reference_half(value, dtype);
        memcpy(ret_element, &half, sizeof half);
    }
}

static void fill(const struct round *r)
{
    size_t bytes = reduce_element_bytes(r->from);
    for (size_t i = 0; i < r->elements; i++) {
        for (int s = 0; s < SOURCES; s++)
            any_moderate(r->from, (char *)source_memory[s] + i * bytes);
        any_moderate(REDUCE_F32, &partial_memory[i]);
        any_moderate(REDUCE_F32, &before.parameters[i]);
        any_moderate(REDUCE_F32, &before.moments[0][i]);
        any_moderate(REDUCE_F32, &before.moments[1][i]);
        before.moments[1][i] = fabsf(before.moments[1][i]);
        if (r->step == 1)
            before.moments[0][i] = before.moments[1][i] = NAN; /* must not be read */
    }
}

static struct reduce_pass sums_of(const struct round *r, void *const targets[2])
{
    static const void *const sources[SOURCES] = {source_memory[0], source_memory[1],
                                                 source_memory[2]};
    static const float weights[SOURCES] = {3, 1, 4194304};
    return (struct reduce_pass){.targets = targets,
                                .targets_count = 2,
                                .sources = sources,
                                .sources_count = SOURCES,
                                .partial = r->has_partial ? partial_memory : NULL,
                                .elements = r->elements,
                                .divisor = r->has_partial ? 0 : SOURCES,
                                .weights = r->is_weighted ? weights : NULL};
}

static void assert_same(const struct round *r, const char *what, const float *got,
                        const float *want)
{
    for (size_t i = 0; i < r->elements; i++)
        if (!reference_is_same(REDUCE_F32, &got[i], &want[i]))
            fail_msg("%s, %s from %s, step %llu, element %zu of %zu: %s %a, expected %a",
                     reduce_set_name(r->set), update_name(r->rule), reduce_dtype_name(r->from),
                     (unsigned long long)r->step, i, r->elements, what, (double)got[i],
                     (double)want[i]);
}

static void assert_targets(const struct round *r)
{
    size_t bytes = reduce_element_bytes(r->to);
    for (size_t i = 0; i < r->elements; i++) {
        float wide = expected.parameters[i];
        uint16_t half = reference_half(wide, r->to == REDUCE_F32 ? REDUCE_F16 : r->to);
        const void *want = r->to == REDUCE_F32 ? (void *)&wide : (void *)&half;
        for (int t = 0; t < 2; t++)
            assert_true(reference_is_same(r->to, (char *)target_memory[t] + i * bytes, want));
    }
    for (int t = 0; t < 2; t++)
        for (size_t i = r->elements * bytes; i < r->elements * bytes + 64; i++)
            assert_int_equal(((unsigned char *)target_memory[t])[i], 0xa5);
}

static void check(const struct round *r, bool in_place)
{
    void *const targets[2] = {target_memory[0], target_memory[1]};
    struct reduce_pass sums = sums_of(r, targets);
    fill(r);
    for (size_t i = 0; i < r->elements; i++) {
        float gradient;
        reference_element(r->is_weighted ? REDUCE_WEIGHTED : REDUCE_SUM, r->from, REDUCE_F32, &sums,
                          i, &gradient);
        expected.parameters[i] = expected_element(r, gradient, i);
    }
    struct arrays *result = in_place ? &before : &after;
    struct update_state state = {.parameters = before.parameters,
                                 .moments = {before.moments[0], before.moments[1]},
                                 .ret_parameters = result->parameters,
                                 .ret_moments = {result->moments[0], result->moments[1]}};
    memset(target_memory, 0xa5, sizeof target_memory);
    update_pick(r->set, r->rule, r->from, r->to)(&sums, &r->settings, r->step, &state);
    assert_same(r, "parameter", result->parameters, expected.parameters);
    for (int m = 0; m < update_moments(r->rule); m++)
        assert_same(r, "moment", result->moments[m], expected.moments[m]);
    assert_targets(r);
}

static void check_all(struct round r)
{
    for (r.set = REDUCE_C; r.set < REDUCE_SETS; r.set++)
        for (r.rule = UPDATE_SGD; r.rule < UPDATE_RULES; r.rule++)
            for (size_t row = 0; row < ROWS; row++) {
                r.from = rows[row].from;
                r.to = rows[row].to;
                r.settings.dampening = r.rule == UPDATE_MOMENTUM ? 0.1 : 0;
                r.has_partial = (r.elements + row) % 2;
                r.is_weighted = (r.elements / 2 + row) % 2;
                assert_null(update_wrong(r.rule, &r.settings));
                if (update_pick(r.set, r.rule, r.from, r.to))
                    check(&r, r.elements % 3 == 0);
            }
}

static const struct update_settings usual = {.rate = 0.01,
                                             .weight_decay = 0.02,
                                             .momentum = 0.9,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .epsilon = 1e-8};

static void every_length_gives_the_bits_of_the_formula(void **state)
{
    for (size_t elements = 0; elements <= 70; elements++)
        check_all((struct round){.settings = usual, .step = 2 + elements, .elements = elements});
    check_all((struct round){.settings = usual, .step = 3, .elements = 1024});
    check_all((struct round){.settings = usual, .step = 3, .elements = 2049});
}

static void the_first_step_does_not_read_moments(void **state)
{
    check_all((struct round){.settings = usual, .step = 1, .elements = 1100});
}

static void without_weight_decay_an_infinite_parameter_stays(void **state)
{
    struct round r = {.set = REDUCE_BEST,
                      .rule = UPDATE_SGD,
                      .from = REDUCE_F32,
                      .to = REDUCE_F32,
                      .settings = {.rate = 0.1},
                      .step = 1,
                      .elements = 1};
    void *const targets[2] = {target_memory[0], target_memory[1]};
    struct reduce_pass sums = sums_of(&r, targets);
    fill(&r);
    before.parameters[0] = INFINITY;
    struct update_state s = {.parameters = before.parameters, .ret_parameters = after.parameters};
    update_pick(r.set, r.rule, r.from, r.to)(&sums, &r.settings, r.step, &s);
    assert_true(isinf(after.parameters[0]) && isinf(target_memory[1][0]));
}

static void settings_without_sense_are_named(void **state)
{
    struct update_settings s = usual;
    assert_null(update_wrong(UPDATE_ADAM, &s));
    assert_string_equal(update_wrong(0, &s), "rule");
    assert_string_equal(update_wrong(UINT32_MAX, &s), "rule");
    s.beta1 = NAN;
    assert_null(update_wrong(UPDATE_SGD, &s)); /* this rule does not use beta1 */
    assert_string_equal(update_wrong(UPDATE_ADAM, &s), "beta1");
    s = usual;
    s.beta2 = 1;
    assert_string_equal(update_wrong(UPDATE_ADAMW, &s), "beta2");
    s = usual;
    s.epsilon = -1;
    assert_string_equal(update_wrong(UPDATE_ADAMW, &s), "epsilon");
    s = usual;
    s.dampening = 0.5;
    assert_null(update_wrong(UPDATE_MOMENTUM, &s));
    assert_string_equal(update_wrong(UPDATE_NESTEROV, &s), "dampening");
    s.momentum = INFINITY;
    assert_string_equal(update_wrong(UPDATE_MOMENTUM, &s), "momentum");
    s.rate = -0.1;
    assert_string_equal(update_wrong(UPDATE_SGD, &s), "rate");
    s = usual;
    s.weight_decay = NAN;
    assert_string_equal(update_wrong(UPDATE_SGD, &s), "weight_decay");
}

static void a_value_outside_the_table_is_unknown(void **state)
{
    assert_null(update_pick(REDUCE_C, (enum update_rule)0, REDUCE_F32, REDUCE_F32));
    assert_null(update_pick(REDUCE_C, (enum update_rule)UPDATE_RULES, REDUCE_F32, REDUCE_F32));
    assert_null(update_pick(REDUCE_C, UPDATE_SGD, REDUCE_F64, REDUCE_F64));
    assert_null(update_pick(REDUCE_C, UPDATE_SGD, REDUCE_I32, REDUCE_I32));
    assert_int_equal(update_moments(0), -1);
    assert_int_equal(update_moments(UPDATE_SGD), 0);
    assert_int_equal(update_moments(UPDATE_NESTEROV), 1);
    assert_int_equal(update_moments(UPDATE_ADAMW), 2);
    assert_string_equal(update_name(UPDATE_ADAM), "adam");
    assert_string_equal(update_name(UINT32_MAX), "?");
}

static int prepare(void **state)
{
    const char *text = getenv("GRADPOOL_TEST_SEED");
    unsigned seed = text ? (unsigned)strtoul(text, NULL, 0) : (unsigned)getpid();
    print_message("# GRADPOOL_TEST_SEED=%u\n", seed);
    srandom(seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_gives_the_bits_of_the_formula),
        cmocka_unit_test(the_first_step_does_not_read_moments),
        cmocka_unit_test(without_weight_decay_an_infinite_parameter_stays),
        cmocka_unit_test(settings_without_sense_are_named),
        cmocka_unit_test(a_value_outside_the_table_is_unknown),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
