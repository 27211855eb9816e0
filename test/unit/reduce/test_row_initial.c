/* Tests the initial values of rows. Philox must give its published answers. The values must equal
 * golden values, which a program in another language has computed. Every instruction set must give
 * the values of plain C. */
#include "svc/reduce/rows/philox.h"
#include "svc/reduce/rows/rows.h"
#include "test/unit/reduce/reduce_reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Uses the rows "philox4x32 10" of tests/kat_vectors in Random123 1.14. */
static void philox_gives_its_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t answer[4];
    } known[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         0xffffffffffffffff,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t words[4];
        memcpy(words, known[i].counter, sizeof words);
        philox(known[i].key, words);
        assert_memory_equal(words, known[i].answer, sizeof words);
    }
}

#define DIM 70
static const int golden_elements[] = {0, 1, 2, 3, 4, 5, 17, 69};
#define ELEMENTS (sizeof golden_elements / sizeof *golden_elements)

static const struct {
    uint64_t key, seed;
    float uniform[ELEMENTS], normal[ELEMENTS];
} golden[] = {
    {0,
     0,
     {0x1.2a3278p-5f, 0x1.262404p-6f, 0x1.497cf2p-5f, 0x1.0bdc22p-5f, 0x1.6f35fep-6f, 0x1.71eep-11f,
      -0x1.060d9p-6f, 0x1.0d4546p-5f},
     {-0x1.ad6544p-9f, 0x1.7dd07p-7f, 0x1.d317dcp-8f, 0x1.d63a82p-9f, 0x1.ef496ep-8f,
      0x1.6139c2p-6f, 0x1.185e5cp-7f, 0x1.fb922ep-8f}},
    {1,
     0,
     {0x1.77051p-6f, -0x1.61492ep-7f, 0x1.70e176p-6f, 0x1.4343d2p-5f, 0x1.1c8646p-5f,
      -0x1.4c658cp-5f, 0x1.d4a9aap-6f, -0x1.c8cbdp-6f},
     {-0x1.7db438p-8f, 0x1.8659c6p-11f, 0x1.3a12d6p-10f, -0x1.63bfa4p-6f, -0x1.9d603ap-7f,
      0x1.dacf2p-10f, 0x1.f6f428p-8f, 0x1.c5668ap-7f}},
    {0x0123456789abcdef,
     42,
     {0x1.b42ecap-6f, -0x1.5af1cp-8f, -0x1.44f606p-7f, 0x1.66d304p-6f, 0x1.7f981ep-5f,
      0x1.ffff7ep-6f, -0x1.b11264p-6f, -0x1.7dd1aap-6f},
     {0x1.a94e0ep-8f, 0x1.91ba84p-8f, 0x1.aa589p-8f, -0x1.379fc4p-9f, -0x1.222f58p-7f,
      -0x1.4cfd6p-6f, -0x1.a6aa64p-7f, -0x1.35f55cp-8f}},
    {UINT64_MAX,
     UINT64_MAX,
     {0x1.19bde2p-5f, 0x1.1d337ep-6f, 0x1.22f16ep-7f, 0x1.2000d6p-5f, 0x1.1d3b7ep-5f,
      -0x1.970256p-5f, 0x1.ccefbap-7f, -0x1.5b2f98p-5f},
     {-0x1.37257cp-7f, 0x1.6498c2p-8f, -0x1.7acc5cp-6f, -0x1.626f6p-7f, -0x1.50da94p-12f,
      -0x1.b8dd84p-6f, 0x1.444372p-9f, 0x1.d1adbap-7f}},
};

static void assert_golden(enum row_initial_kind kind, double value, size_t g, const float *want)
{
    struct row_initial initial = {.kind = kind, .value = value, .seed = golden[g].seed};
    float row[DIM];
    row_initial_pick(REDUCE_BEST, REDUCE_F32)(&initial, golden[g].key, DIM, row);
    for (size_t i = 0; i < ELEMENTS; i++)
        if (row[golden_elements[i]] != want[i])
            fail_msg("key %llu, element %d: %a, golden %a", (unsigned long long)golden[g].key,
                     golden_elements[i], (double)row[golden_elements[i]], (double)want[i]);
}

static void initial_values_are_the_golden_ones(void **state)
{
    for (size_t g = 0; g < sizeof golden / sizeof *golden; g++) {
        assert_golden(ROW_UNIFORM, 0.05, g, golden[g].uniform);
        assert_golden(ROW_NORMAL, 0.01, g, golden[g].normal);
    }
}

/* Compares the row of an instruction set, and the bytes after it. */
static void compare_with_c(enum reduce_set set, enum reduce_dtype dtype, uint32_t dim,
                           const struct row_initial *initial)
{
    unsigned char want[4 * DIM + 64], got[4 * DIM + 64];
    memset(want, 0xa5, sizeof want);
    memset(got, 0xa5, sizeof got);
    row_initial_pick(REDUCE_C, dtype)(initial, 4711 + dim, dim, want);
    row_initial_pick(set, dtype)(initial, 4711 + dim, dim, got);
    assert_memory_equal(got, want, sizeof want);
    for (size_t i = dim * reduce_element_bytes(dtype); i < sizeof want; i++)
        assert_int_equal(got[i], 0xa5);
}

static void every_set_has_the_bits_of_plain_c(void **state)
{
    static const enum reduce_dtype dtypes[] = {REDUCE_F32, REDUCE_F16, REDUCE_BF16};
    for (enum reduce_set set = REDUCE_C; set < REDUCE_SETS; set++)
        for (size_t d = 0; d < 3 && row_initial_pick(set, dtypes[d]); d++)
            for (uint32_t dim = 1; dim <= DIM; dim++)
                for (unsigned kind = 0; kind < ROW_INITIAL_KINDS; kind++)
                    compare_with_c(set, dtypes[d], dim,
                                   &(struct row_initial){.kind = kind, .value = 0.3, .seed = dim});
}

static void a_half_is_the_rounded_value(void **state)
{
    struct row_initial initial = {.kind = ROW_NORMAL, .value = 0.3, .seed = 9};
    uint16_t halves[DIM];
    float wide[DIM];
    row_initial_pick(REDUCE_BEST, REDUCE_F32)(&initial, 77, DIM, wide);
    row_initial_pick(REDUCE_BEST, REDUCE_F16)(&initial, 77, DIM, halves);
    for (int i = 0; i < DIM; i++)
        assert_int_equal(halves[i], reference_half(wide[i], REDUCE_F16));
}

static void a_value_depends_on_no_other_element(void **state)
{
    struct row_initial initial = {.kind = ROW_UNIFORM, .value = 1, .seed = 5};
    float whole[DIM], part[DIM];
    for (initial.kind = ROW_UNIFORM; initial.kind <= ROW_NORMAL; initial.kind++) {
        row_initial_pick(REDUCE_BEST, REDUCE_F32)(&initial, 123, DIM, whole);
        for (uint32_t dim = 1; dim < DIM; dim++) {
            row_initial_pick(REDUCE_BEST, REDUCE_F32)(&initial, 123, dim, part);
            assert_memory_equal(part, whole, dim * sizeof *part);
        }
    }
}

/* The limits of the test are five standard errors of 70,000 draws. */
static void values_have_the_mean_and_the_width_of_their_kind(void **state)
{
    static const double width[] = {[ROW_UNIFORM] = 0.57735, [ROW_NORMAL] = 1};
    for (enum row_initial_kind kind = ROW_UNIFORM; kind <= ROW_NORMAL; kind++) {
        struct row_initial initial = {.kind = kind, .value = 1, .seed = 1};
        double sum = 0, squares = 0, count = 0;
        for (uint64_t key = 0; key < 1000; key++) {
            float row[DIM];
            row_initial_pick(REDUCE_BEST, REDUCE_F32)(&initial, key, DIM, row);
            for (int i = 0; i < DIM; i++, count++) {
                assert_true(fabsf(row[i]) < (kind == ROW_UNIFORM ? 1 : 4.9f));
                sum += row[i];
                squares += row[i] * row[i];
            }
        }
        assert_true(fabs(sum / count) < 5 * width[kind] / sqrt(count));
        assert_true(fabs(squares / count - width[kind] * width[kind]) < 5 * 1.5 / sqrt(count));
    }
}

static void zeros_and_constants_have_their_values(void **state)
{
    struct row_initial initial = {.kind = ROW_CONSTANT, .value = -2.5};
    float row[DIM];
    row_initial_pick(REDUCE_BEST, REDUCE_F32)(&initial, 1, DIM, row);
    for (int i = 0; i < DIM; i++)
        assert_true(row[i] == -2.5f);
    initial.kind = ROW_ZEROS; /* zeros do not use this value */
    row_initial_pick(REDUCE_BEST, REDUCE_F32)(&initial, 1, DIM, row);
    for (int i = 0; i < DIM; i++)
        assert_true(row[i] == 0 && !signbit(row[i]));
}

static void an_initial_value_without_sense_is_named(void **state)
{
    assert_null(row_initial_wrong(&(struct row_initial){.kind = ROW_ZEROS, .value = NAN}));
    assert_null(row_initial_wrong(&(struct row_initial){.kind = ROW_CONSTANT, .value = -1}));
    assert_string_equal(row_initial_wrong(&(struct row_initial){.kind = ROW_INITIAL_KINDS}),
                        "kind");
    assert_string_equal(row_initial_wrong(&(struct row_initial){ROW_CONSTANT, NAN, 0}), "value");
    assert_string_equal(row_initial_wrong(&(struct row_initial){ROW_NORMAL, -1, 0}), "value");
    assert_string_equal(row_initial_wrong(&(struct row_initial){ROW_UNIFORM, 1e39, 0}), "value");
    assert_null(row_initial_pick(REDUCE_C, REDUCE_I64));
    assert_null(row_initial_pick(REDUCE_C, (enum reduce_dtype)REDUCE_DTYPES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_its_known_answers),
        cmocka_unit_test(initial_values_are_the_golden_ones),
        cmocka_unit_test(every_set_has_the_bits_of_plain_c),
        cmocka_unit_test(a_half_is_the_rounded_value),
        cmocka_unit_test(a_value_depends_on_no_other_element),
        cmocka_unit_test(values_have_the_mean_and_the_width_of_their_kind),
        cmocka_unit_test(zeros_and_constants_have_their_values),
        cmocka_unit_test(an_initial_value_without_sense_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
