/* Tests the row rules. Every kernel of every instruction set is compared with the formulas, one
 * element at a time. */
#include "svc/reduce/rows/rows.h"
#include "test/unit/reduce/reduce_reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROOM (ROW_DIM_MAX + 16)
#define UNTOUCHED 0xa5

static const enum reduce_dtype dtypes[] = {REDUCE_F32, REDUCE_F16, REDUCE_BF16};
#define DTYPES (sizeof dtypes / sizeof *dtypes)

struct row_case {
    enum reduce_set set;
    enum row_rule rule;
    enum reduce_dtype dtype;
    struct row_settings settings;
    uint64_t step;
    uint32_t dim, divisor;
};

/* Values before the step as f32, and as stored. */
static float gradient[ROOM], value[ROOM], moment[2 * ROOM];
static float expected_value[ROOM], expected_moment[2 * ROOM];
static float stored[ROOM], stored_moment[2 * ROOM];

static float any_float(void)
{
    return (float)ldexp((double)random() - (1 << 30), -31 - (int)(random() % 8));
}

static float stored_as(enum reduce_dtype dtype, float wide)
{
    return dtype == REDUCE_F32 ? wide
                               : (float)reference_from_half(reference_half(wide, dtype), dtype);
}

static void fill(const struct row_case *c)
{
    int moments = row_moments(c->rule, c->dim);
    for (uint32_t i = 0; i < c->dim; i++) {
        gradient[i] = any_float();
        value[i] = stored_as(c->dtype, any_float());
    }
    for (int i = 0; i < moments; i++)
        moment[i] = fabsf(any_float());
    for (uint32_t i = 0; c->rule == ROW_FTRL && i < c->dim; i++)
        moment[i] = any_float();
    memset(stored, UNTOUCHED, sizeof stored);
    memset(stored_moment, UNTOUCHED, sizeof stored_moment);
    memcpy(stored_moment, moment, (size_t)moments * sizeof *moment);
    for (uint32_t i = 0; i < c->dim; i++) {
        uint16_t half = reference_half(value[i], c->dtype == REDUCE_F32 ? REDUCE_F16 : c->dtype);
        if (c->dtype == REDUCE_F32)
            stored[i] = value[i];
        else
            memcpy((char *)stored + i * sizeof half, &half, sizeof half);
    }
}

/* Returns the gradient of one element. volatile prevents contraction and wider intermediate
 * values. */
static float decayed(const struct row_case *c, uint32_t i)
{
    volatile float g = gradient[i] / (float)c->divisor, part;
    if (c->rule == ROW_FTRL || c->settings.weight_decay == 0)
        return g;
    part = (float)c->settings.weight_decay * value[i];
    return g + part;
}

static void expect_adagrad(const struct row_case *c, uint32_t i)
{
    volatile float g = decayed(c, i), square = g * g, sum = moment[i] + square, scale = sqrtf(sum);
    scale = scale + (float)c->settings.epsilon;
    volatile float part = g / scale;
    part = (float)c->settings.rate * part;
    expected_moment[i] = sum;
    expected_value[i] = value[i] - part;
}

/* Computes the mean of squares by R11: sixteen partial sums are added pairwise. */
static float mean_square(const struct row_case *c)
{
    volatile float strand[16] = {0}, square;
    for (uint32_t i = 0; i < c->dim; i++) {
        volatile float g = decayed(c, i);
        square = g * g;
        strand[i % 16] = strand[i % 16] + square;
    }
    for (int half = 8; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            strand[j] = strand[j] + strand[j + half];
    return strand[0] / (float)c->dim;
}

static void expect_adagrad_one(const struct row_case *c)
{
    volatile float mean = mean_square(c), sum = moment[0] + mean, scale = sqrtf(sum);
    scale = scale + (float)c->settings.epsilon;
    volatile float rate = (float)c->settings.rate / scale, part;
    expected_moment[0] = sum;
    for (uint32_t i = 0; i < c->dim; i++) {
        part = rate * decayed(c, i);
        expected_value[i] = value[i] - part;
    }
}

static double slow_power(double base, uint64_t exponent)
{
    double result = 1;
    while (exponent-- > 0)
        result *= base;
    return result;
}

static void expect_adam(const struct row_case *c, uint32_t i)
{
    const struct row_settings *s = &c->settings;
    double root = sqrt(1 - slow_power(s->beta2, c->step));
    volatile float g = decayed(c, i), m = moment[i], v = moment[c->dim + i], part;
    part = g - m;
    part = part * (float)(1 - s->beta1);
    m = m + part;
    part = g * g;
    part = part - v;
    part = part * (float)(1 - s->beta2);
    v = v + part;
    expected_moment[i] = m;
    expected_moment[c->dim + i] = v;
    volatile float scale = sqrtf(v);
    scale = scale + (float)s->epsilon;
    part = m / scale;
    part = (float)(s->rate * root / (1 - slow_power(s->beta1, c->step))) * part;
    expected_value[i] = value[i] - part;
}

static void expect_ftrl(const struct row_case *c, uint32_t i)
{
    const struct row_settings *s = &c->settings;
    volatile float g = decayed(c, i), z = moment[i], n = moment[c->dim + i], part = g * g;
    volatile float more = n + part, root = sqrtf(more), before = sqrtf(n), sigma = root - before;
    sigma = sigma / (float)s->rate;
    z = z + g;
    part = sigma * value[i];
    z = z - part;
    volatile float scale = (float)s->beta + root;
    scale = scale / (float)s->rate;
    scale = scale + (float)s->l2;
    volatile float beyond = z > 0 ? z - (float)s->l1 : z + (float)s->l1;
    expected_moment[i] = z;
    expected_moment[c->dim + i] = more;
    expected_value[i] = fabsf(z) <= (float)s->l1 ? 0 : -beyond / scale;
}

static void expect(const struct row_case *c)
{
    if (c->rule == ROW_ADAGRAD_ONE)
        expect_adagrad_one(c);
    for (uint32_t i = 0; i < c->dim; i++) {
        volatile float part = (float)c->settings.rate * decayed(c, i);
        switch (c->rule) {
        case ROW_SGD: expected_value[i] = value[i] - part; break;
        case ROW_ADAGRAD: expect_adagrad(c, i); break;
        case ROW_ADAGRAD_ONE: break;
        case ROW_ADAM: expect_adam(c, i); break;
        case ROW_FTRL: expect_ftrl(c, i); break;
        }
    }
}

static void assert_same(const struct row_case *c, const char *what, uint32_t i, const void *got,
                        const void *want, enum reduce_dtype dtype)
{
    if (!reference_is_same(dtype, got, want))
        fail_msg("%s, %s, %s, dim %u, step %llu: %s %u differs from the formula",
                 reduce_set_name(c->set), row_rule_name(c->rule), reduce_dtype_name(c->dtype),
                 c->dim, (unsigned long long)c->step, what, i);
}

static void assert_row(const struct row_case *c)
{
    size_t bytes = reduce_element_bytes(c->dtype);
    int moments = row_moments(c->rule, c->dim);
    for (uint32_t i = 0; i < c->dim; i++) {
        float wide = expected_value[i];
        uint16_t half = reference_half(wide, c->dtype == REDUCE_F32 ? REDUCE_F16 : c->dtype);
        const void *want = c->dtype == REDUCE_F32 ? (void *)&wide : (void *)&half;
        assert_same(c, "value", i, (char *)stored + i * bytes, want, c->dtype);
    }
    for (int i = 0; i < moments; i++)
        assert_same(c, "moment", (uint32_t)i, &stored_moment[i], &expected_moment[i], REDUCE_F32);
    for (size_t i = c->dim * bytes; i < c->dim * bytes + 64; i++)
        assert_int_equal(((unsigned char *)stored)[i], UNTOUCHED);
    for (size_t i = (size_t)moments * 4; i < (size_t)moments * 4 + 64; i++)
        assert_int_equal(((unsigned char *)stored_moment)[i], UNTOUCHED);
}

static bool apply(const struct row_case *c, bool accepts_nonfinite)
{
    struct row_step step = row_step(&c->settings, c->step, c->divisor, accepts_nonfinite);
    assert_null(row_wrong(c->rule, &c->settings));
    return row_pick(c->set, c->rule, c->dtype)(&step, gradient, c->dim, stored, stored_moment);
}

/* Calls `check` for every rule, instruction set and dtype. */
static void for_all(struct row_case c, void (*check)(const struct row_case *c))
{
    for (c.set = REDUCE_C; c.set < REDUCE_SETS; c.set++)
        for (c.rule = ROW_SGD; c.rule < ROW_RULES; c.rule++)
            for (size_t d = 0; d < DTYPES; d++) {
                c.dtype = dtypes[d];
                if (row_pick(c.set, c.rule, c.dtype))
                    check(&c);
            }
}

static void check_bits(const struct row_case *c)
{
    fill(c);
    expect(c);
    assert_true(apply(c, c->dim % 2));
    assert_row(c);
}

static const struct row_settings usual = {.rate = 0.05,
                                          .weight_decay = 0.02,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .epsilon = 1e-8,
                                          .beta = 1,
                                          .l1 = 0.1,
                                          .l2 = 0.01};

static void every_length_gives_the_bits_of_the_formula(void **state)
{
    static const uint32_t long_dims[] = {127, 128, 1000, 1024, ROW_DIM_MAX - 1, ROW_DIM_MAX};
    for (uint32_t dim = 1; dim <= 70; dim++)
        for_all(
            (struct row_case){.settings = usual, .step = dim, .dim = dim, .divisor = 1 + dim % 5},
            check_bits);
    for (size_t i = 0; i < sizeof long_dims / sizeof *long_dims; i++)
        for_all((struct row_case){.settings = usual, .step = 7, .dim = long_dims[i], .divisor = 3},
                check_bits);
}

static void a_new_row_starts_from_moments_of_zeros(void **state)
{
    struct row_case c = {
        .set = REDUCE_C, .dtype = REDUCE_F32, .settings = usual, .step = 1, .dim = 3, .divisor = 1};
    for (c.rule = ROW_SGD; c.rule < ROW_RULES; c.rule++) {
        fill(&c);
        memset(moment, 0, sizeof moment);
        memset(stored_moment, 0, (size_t)row_moments(c.rule, c.dim) * sizeof *stored_moment);
        expect(&c);
        assert_true(apply(&c, false));
        assert_row(&c);
    }
}

static void check_nonfinite(const struct row_case *c)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY};
    static float before[ROOM], moments_before[2 * ROOM];
    for (size_t s = 0; s < 3; s++) {
        fill(c);
        gradient[(c->dim - 1) * s / 2] = specials[s];
        memcpy(before, stored, sizeof before);
        memcpy(moments_before, stored_moment, sizeof moments_before);
        assert_false(apply(c, false));
        assert_memory_equal(before, stored, sizeof before);
        assert_memory_equal(moments_before, stored_moment, sizeof moments_before);
        assert_true(apply(c, true));
        assert_memory_not_equal(before, stored, sizeof before);
    }
}

static void a_gradient_that_is_not_finite_leaves_the_row(void **state)
{
    for (uint32_t dim = 1; dim <= 35; dim += 17)
        for_all((struct row_case){.settings = usual, .step = 3, .dim = dim, .divisor = 1},
                check_nonfinite);
}

static void without_weight_decay_an_infinite_value_stays(void **state)
{
    struct row_case c = {.set = REDUCE_BEST,
                         .dtype = REDUCE_F32,
                         .settings = usual,
                         .step = 2,
                         .dim = 1,
                         .divisor = 1};
    c.settings.weight_decay = 0;
    for (c.rule = ROW_SGD; c.rule <= ROW_ADAM; c.rule++) {
        fill(&c);
        stored[0] = INFINITY;
        assert_true(apply(&c, false));
        assert_true(isinf(stored[0]));
    }
}

static void ftrl_gives_exact_zeros_within_l1(void **state)
{
    struct row_case c = {.set = REDUCE_BEST,
                         .rule = ROW_FTRL,
                         .dtype = REDUCE_F32,
                         .settings = usual,
                         .step = 1,
                         .dim = 70,
                         .divisor = 1};
    c.settings.l1 = 100;
    fill(&c);
    assert_true(apply(&c, false));
    for (uint32_t i = 0; i < c.dim; i++)
        assert_true(stored[i] == 0 && !signbit(stored[i]));
}

static void settings_without_sense_are_named(void **state)
{
    struct row_settings s = usual;
    assert_string_equal(row_wrong(0, &s), "rule");
    assert_string_equal(row_wrong(UINT32_MAX, &s), "rule");
    s.beta1 = NAN;
    assert_null(row_wrong(ROW_ADAGRAD, &s)); /* this rule does not use beta1 */
    assert_string_equal(row_wrong(ROW_ADAM, &s), "beta1");
    s = usual;
    s.beta2 = 1;
    assert_string_equal(row_wrong(ROW_ADAM, &s), "beta2");
    s = usual;
    s.epsilon = -1;
    assert_string_equal(row_wrong(ROW_ADAGRAD, &s), "epsilon");
    assert_string_equal(row_wrong(ROW_ADAGRAD_ONE, &s), "epsilon");
    s = usual;
    s.weight_decay = INFINITY;
    assert_string_equal(row_wrong(ROW_SGD, &s), "weight_decay");
    assert_null(row_wrong(ROW_FTRL, &s));
    s.rate = 0;
    assert_string_equal(row_wrong(ROW_FTRL, &s), "rate");
    s.rate = NAN;
    assert_string_equal(row_wrong(ROW_SGD, &s), "rate");
    s = usual;
    s.beta = -1;
    assert_string_equal(row_wrong(ROW_FTRL, &s), "beta");
    s = usual;
    s.l1 = NAN;
    assert_string_equal(row_wrong(ROW_FTRL, &s), "l1");
    s = usual;
    s.l2 = -1;
    assert_string_equal(row_wrong(ROW_FTRL, &s), "l2");
}

static void an_unknown_rule_has_no_kernel_and_no_moments(void **state)
{
    assert_null(row_pick(REDUCE_C, (enum row_rule)0, REDUCE_F32));
    assert_null(row_pick(REDUCE_C, (enum row_rule)ROW_RULES, REDUCE_F32));
    assert_null(row_pick(REDUCE_C, ROW_SGD, REDUCE_F64));
    assert_null(row_pick(REDUCE_C, ROW_SGD, (enum reduce_dtype)REDUCE_DTYPES));
    assert_int_equal(row_moments(0, 8), -1);
    assert_int_equal(row_moments(ROW_SGD, ROW_DIM_MAX + 1), -1);
    assert_string_equal(row_rule_name(UINT32_MAX), "?");
    assert_string_equal(row_rule_name(ROW_ADAGRAD_ONE), "adagrad-one");
}

static void a_rule_names_its_moments(void **state)
{
    static const int expected[ROW_RULES] = {-1, 0, 7, 1, 14, 14};
    for (unsigned rule = 0; rule < ROW_RULES; rule++)
        assert_int_equal(row_moments(rule, 7), expected[rule]);
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
        cmocka_unit_test(a_new_row_starts_from_moments_of_zeros),
        cmocka_unit_test(a_gradient_that_is_not_finite_leaves_the_row),
        cmocka_unit_test(without_weight_decay_an_infinite_value_stays),
        cmocka_unit_test(ftrl_gives_exact_zeros_within_l1),
        cmocka_unit_test(settings_without_sense_are_named),
        cmocka_unit_test(an_unknown_rule_has_no_kernel_and_no_moments),
        cmocka_unit_test(a_rule_names_its_moments),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
