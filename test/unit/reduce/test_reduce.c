/* Compares the sums bit by bit with the simplest loop. */
#include "svc/reduce/reduce.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SOURCES REDUCE_SOURCES_MAX
#define ROOM 4096
#define GUARD 64
#define GUARD_BITS 0x7fedcba9u

static float source_memory[SOURCES][ROOM];
static float target_memory[REDUCE_TARGETS_MAX][ROOM];
static float expected[ROOM];

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Returns a value of any magnitude and sign, or a special value. The sum of such values depends on
 * the order. */
static float any_value(void)
{
    static const uint32_t special[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001,
                                       0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
                                       0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001};
    if (random() % 16 == 0)
        return from_bits(special[(size_t)random() % (sizeof(special) / sizeof(special[0]))]);
    return (float)(ldexp((double)random() - (1 << 30), (int)(random() % 40) - 50));
}

static void fill_sources(void)
{
    for (int s = 0; s < SOURCES; s++)
        for (int i = 0; i < ROOM; i++)
            source_memory[s][i] = any_value();
}

static void guard_targets(void)
{
    for (int t = 0; t < REDUCE_TARGETS_MAX; t++)
        for (int i = 0; i < ROOM; i++)
            target_memory[t][i] = from_bits(GUARD_BITS);
}

static void sum_plainly(const float *const source[], int count, size_t elements, uint32_t divisor)
{
    for (size_t i = 0; i < elements; i++) {
        volatile float sum = source[0][i];
        for (int s = 1; s < count; s++)
            sum = sum + source[s][i];
        if (divisor > 1)
            sum = sum / (float)divisor;
        expected[i] = sum;
    }
}

static bool same_bits(float left, float right)
{
    return bits_of(left) == bits_of(right) || (isnan(left) && isnan(right));
}

static void assert_result(const float *result, size_t elements)
{
    for (size_t i = 0; i < elements; i++)
        if (!same_bits(result[i], expected[i]))
            fail_msg("element %zu of %zu: %a, expected %a", i, elements, (double)result[i],
                     (double)expected[i]);
}

static void assert_guarded(const float *memory, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(bits_of(memory[i]), GUARD_BITS);
}

static void reduce(void *const *targets, int targets_count, const void *const *sources,
                   int sources_count, size_t elements, uint32_t divisor)
{
    reduce_pick(REDUCE_BEST, REDUCE_SUM, REDUCE_F32,
                REDUCE_F32)(&(struct reduce_pass){.targets = targets,
                                                  .targets_count = targets_count,
                                                  .sources = sources,
                                                  .sources_count = sources_count,
                                                  .elements = elements,
                                                  .divisor = divisor});
}

struct shape {
    int sources, targets;
    size_t elements, offset;
    uint32_t divisor;
};

/* Sources and targets have different alignments, all derived from `offset`. */
static void check_shape(const struct shape *c)
{
    const float *source[SOURCES];
    float *target[REDUCE_TARGETS_MAX];
    for (int s = 0; s < c->sources; s++)
        source[s] = source_memory[s] + (c->offset * (size_t)(s + 1)) % 16;
    for (int t = 0; t < c->targets; t++)
        target[t] = target_memory[t] + GUARD + (c->offset + (size_t)t) % 16;
    sum_plainly(source, c->sources, c->elements, c->divisor);
    reduce((void *const *)target, c->targets, (const void *const *)source, c->sources, c->elements,
           c->divisor);
    for (int t = 0; t < c->targets; t++) {
        assert_result(target[t], c->elements);
        assert_guarded(target_memory[t], (size_t)(target[t] - target_memory[t]));
        assert_guarded(target[t] + c->elements, GUARD);
        for (size_t i = 0; i < c->elements; i++)
            target[t][i] = from_bits(GUARD_BITS);
    }
}

static void all_short_lengths_at_all_alignments(void **state)
{
    for (size_t elements = 0; elements <= 70; elements++)
        for (size_t offset = 0; offset < 16; offset++)
            for (int sources = 1; sources <= SOURCES; sources++)
                check_shape(&(struct shape){sources, 1 + (int)(offset % REDUCE_TARGETS_MAX),
                                            elements, offset, (uint32_t)(offset % 4)});
}

static void all_counts_of_sources_and_targets(void **state)
{
    static const size_t lengths[] = {1, 7, 64, 1023, 1024, 1025, 2047, 2048, 2049, 3000};
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++)
        for (int sources = 1; sources <= SOURCES; sources++)
            for (int targets = 1; targets <= REDUCE_TARGETS_MAX; targets++)
                check_shape(&(struct shape){sources, targets, lengths[l],
                                            (size_t)(sources + targets) % 16,
                                            (uint32_t)(targets % 2 ? sources : 0)});
}

static void the_mean_is_a_true_division(void **state)
{
    for (uint32_t divisor = 0; divisor <= 768; divisor++)
        check_shape(&(struct shape){3, 1, 257, 3, divisor});
}

static void special_values_pass_through(void **state)
{
    float a[] = {INFINITY, INFINITY, NAN, from_bits(1), -0.0f, FLT_MAX, from_bits(0x00800000)};
    float b[] = {1.0f, -INFINITY, 1.0f, from_bits(1), -0.0f, FLT_MAX, -from_bits(1)};
    float sum[7];
    const void *source[] = {a, b};
    void *target[] = {sum};
    reduce(target, 1, source, 2, 7, 0);
    assert_true(isinf(sum[0]) && isnan(sum[1]) && isnan(sum[2]));
    assert_int_equal(bits_of(sum[3]), 2);          /* the sum of denormals */
    assert_int_equal(bits_of(sum[4]), 0x80000000); /* -0 + -0 */
    assert_true(isinf(sum[5]));
    assert_int_equal(bits_of(sum[6]), 0x007fffff); /* the sum of normal numbers is denormal */
    reduce(target, 1, source, 1, 7, 2);
    assert_int_equal(bits_of(sum[6]), 0x00400000); /* the division gives a denormal number */
}

static void a_target_may_be_any_of_the_sources(void **state)
{
    for (int aliased = 0; aliased < SOURCES; aliased++)
        for (int targets = 1; targets <= 3; targets++) {
            size_t elements = 2500;
            const float *source[SOURCES];
            void *target[3] = {target_memory[0] + aliased, target_memory[1], target_memory[2]};
            for (int s = 0; s < SOURCES; s++)
                source[s] = source_memory[s];
            sum_plainly(source, SOURCES, elements, 8);
            /* the last target is also a source, so the case tests copies, too */
            float *both = target[targets - 1];
            memcpy(both, source[aliased], elements * sizeof(float));
            source[aliased] = both;
            reduce(target, targets, (const void *const *)source, SOURCES, elements, 8);
            for (int t = 0; t < targets; t++)
                assert_result(target[t], elements);
            guard_targets();
        }
}

static void many_workers_in_place(void **state)
{
    /* every target is a source, as if each sum replaced a worker's gradient */
    const float *source[SOURCES];
    void *target[SOURCES];
    for (int s = 0; s < SOURCES; s++) {
        memcpy(target_memory[s], source_memory[s], sizeof(source_memory[s]));
        target[s] = target_memory[s];
        source[s] = target_memory[s];
    }
    sum_plainly(source, SOURCES, ROOM, 8);
    reduce(target, SOURCES, (const void *const *)source, SOURCES, ROOM, 8);
    for (int t = 0; t < SOURCES; t++)
        assert_result(target[t], ROOM);
    guard_targets();
}

#define MANY 37
static void sum_in_passes(float *sum, const float *const source[], int count, size_t elements)
{
    void *target[] = {sum};
    for (int done = 0; done < count;) {
        const void *pass[SOURCES];
        int width = 0;
        if (done > 0)
            pass[width++] = sum;
        while (width < SOURCES && done < count)
            pass[width++] = source[done++];
        reduce(target, 1, pass, width, elements, done == count ? (uint32_t)count : 0);
    }
}

static void passes_give_the_bits_of_the_plain_order(void **state)
{
    static float memory[MANY][200];
    const float *source[MANY];
    float sum[200];
    for (int s = 0; s < MANY; s++) {
        source[s] = memory[s];
        for (int i = 0; i < 200; i++)
            memory[s][i] = any_value();
    }
    for (int count = 1; count <= MANY; count++) {
        sum_plainly(source, count, 200, (uint32_t)count);
        sum_in_passes(sum, source, count, 200);
        assert_result(sum, 200);
    }
}

static void a_value_outside_the_table_is_unknown(void **state)
{
    assert_null(reduce_pick(REDUCE_C, (enum reduce_operation)0, REDUCE_F32, REDUCE_F32));
    assert_null(reduce_pick(REDUCE_C, (enum reduce_operation)99, REDUCE_F32, REDUCE_F32));
    assert_null(reduce_pick((enum reduce_set)99, REDUCE_SUM, REDUCE_F32, REDUCE_F32));
    assert_null(reduce_pick(REDUCE_C, REDUCE_SUM, REDUCE_F32, REDUCE_F16));
    assert_null(reduce_pick(REDUCE_C, REDUCE_SUM, REDUCE_I32, REDUCE_I64));
    assert_int_equal(reduce_element_bytes(REDUCE_F32), 4);
    assert_string_equal(reduce_dtype_name(REDUCE_BF16), "bf16");
    static const unsigned unknown[] = {0, REDUCE_DTYPES, 255, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        enum reduce_dtype dtype = (enum reduce_dtype)unknown[i];
        assert_null(reduce_pick(REDUCE_C, REDUCE_SUM, dtype, dtype));
        assert_int_equal(reduce_element_bytes(unknown[i]), 0);
        assert_int_equal(reduce_accumulator(unknown[i]), 0);
        assert_false(reduce_divides(unknown[i]));
        assert_string_equal(reduce_dtype_name(unknown[i]), "?");
    }
}

static int prepare(void **state)
{
    unsigned seed = 20240608;
    print_message("# seed %u\n", seed);
    srandom(seed);
    fill_sources();
    guard_targets();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_short_lengths_at_all_alignments),
        cmocka_unit_test(all_counts_of_sources_and_targets),
        cmocka_unit_test(the_mean_is_a_true_division),
        cmocka_unit_test(special_values_pass_through),
        cmocka_unit_test(a_target_may_be_any_of_the_sources),
        cmocka_unit_test(many_workers_in_place),
        cmocka_unit_test(passes_give_the_bits_of_the_plain_order),
        cmocka_unit_test(a_value_outside_the_table_is_unknown),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
