/* Compares every kernel of every instruction set bit by bit with the reductions by definition. */
#include "svc/reduce/internal.h"
#include "test/unit/reduce/reduce_reference.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define SHORT_MOST 70
#define LONG_MOST 2600
#define ROOM_BYTES ((LONG_MOST + 64) * 8)
#define GUARD_BYTE 0xa5
#define LINE_BYTES 64
#define VARIANTS 4 /* with or without a partial result, divided or not */
#define STREAMS 4  /* added to a variant: stores bypass the cache, with the same bits (R10) */

struct kernel {
    enum reduce_operation operation;
    enum reduce_dtype from, to;
};

static const struct {
    enum reduce_dtype from, to;
} rows[] = {{REDUCE_F32, REDUCE_F32}, {REDUCE_F64, REDUCE_F64},   {REDUCE_F16, REDUCE_F16},
            {REDUCE_F16, REDUCE_F32}, {REDUCE_BF16, REDUCE_BF16}, {REDUCE_BF16, REDUCE_F32},
            {REDUCE_I32, REDUCE_I32}, {REDUCE_I64, REDUCE_I64}};
#define ROWS (sizeof rows / sizeof *rows)

/* Input values, and expected results for each number of sources and each variant. */
static char values[REDUCE_SOURCES_MAX][ROOM_BYTES], partial_values[ROOM_BYTES];
static char expected[REDUCE_SOURCES_MAX + 1][VARIANTS][ROOM_BYTES];
/* Input and output of a kernel. */
static char source_memory[REDUCE_SOURCES_MAX][ROOM_BYTES], partial_memory[ROOM_BYTES];
static char target_memory[ROOM_BYTES + 128] __attribute__((aligned(LINE_BYTES)));

/* These weights include 1 and the largest weight of a round. */
static const float weights[REDUCE_SOURCES_MAX] = {3, 1, 7, 4194304, 2, 192, 65537, 1};

static size_t bytes_of(enum reduce_dtype dtype, size_t elements)
{
    return elements * reduce_element_bytes(dtype);
}

static struct reduce_pass pass_of(const struct kernel *k, int variant, int count, size_t elements)
{
    return (struct reduce_pass){.targets_count = 1,
                                .sources_count = count,
                                .elements = elements,
                                .divisor = variant & 2 && reduce_divides(k->from)
                                               ? 1 + (uint32_t)count
                                               : (uint32_t)(count % 2),
                                .streams = variant & STREAMS,
                                .weights = k->operation == REDUCE_WEIGHTED ? weights : NULL};
}

static void make_expected(const struct kernel *k, int variant, int count, size_t elements)
{
    const void *sources[REDUCE_SOURCES_MAX];
    struct reduce_pass pass = pass_of(k, variant, count, elements);
    for (int s = 0; s < REDUCE_SOURCES_MAX; s++)
        sources[s] = values[s];
    pass.sources = sources;
    pass.partial = variant & 1 ? partial_values : NULL;
    for (size_t i = 0; i < elements; i++)
        reference_element(k->operation, k->from, k->to, &pass, i,
                          expected[count][variant] + bytes_of(k->to, i));
}

static void prepare_kernel(const struct kernel *k, size_t elements)
{
    for (size_t i = 0; i < elements; i++) {
        for (int s = 0; s < REDUCE_SOURCES_MAX; s++)
            reference_any(k->from, values[s] + bytes_of(k->from, i));
        reference_any(reduce_accumulator(k->from),
                      partial_values + bytes_of(reduce_accumulator(k->from), i));
    }
    for (int count = 1; count <= REDUCE_SOURCES_MAX; count++)
        for (int variant = 0; variant < VARIANTS; variant++)
            make_expected(k, variant, count, elements);
}

static void for_each_kernel(void (*check)(enum reduce_set, const struct kernel *), size_t elements)
{
    for (enum reduce_operation o = REDUCE_SUM; o < REDUCE_OPERATIONS; o++)
        for (size_t r = 0; r < ROWS; r++) {
            struct kernel k = {o, rows[r].from, rows[r].to};
            prepare_kernel(&k, elements);
            for (enum reduce_set set = REDUCE_C; set < REDUCE_SETS; set++)
                if (reduce_pick(set, o, k.from, k.to))
                    check(set, &k);
        }
}

static void assert_expected(enum reduce_set set, const struct kernel *k, int variant, int count,
                            size_t elements, const char *result)
{
    const char *want = expected[count][variant % VARIANTS];
    size_t bytes = reduce_element_bytes(k->to);
    if (memcmp(result, want, elements * bytes) == 0)
        return;
    for (size_t i = 0; i < elements; i++)
        if (!reference_is_same(k->to, result + i * bytes, want + i * bytes))
            fail_msg("%s, operation %d, %s to %s, %d sources, variant %d: element %zu of %zu",
                     reduce_set_name(set), k->operation, reduce_dtype_name(k->from),
                     reduce_dtype_name(k->to), count, variant, i, elements);
}

static bool is_guarded(const char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)memory[i] != GUARD_BYTE)
            return false;
    return true;
}

/* Each array has another offset, derived from `offset`. Bytes outside the target must not
 * change. */
static void check_variant(enum reduce_set set, const struct kernel *k, size_t elements,
                          size_t offset, int variant)
{
    int count = 1 + (int)((elements + offset) % REDUCE_SOURCES_MAX);
    struct reduce_pass pass = pass_of(k, variant, count, elements);
    const void *sources[REDUCE_SOURCES_MAX];
    char *target = target_memory + 64 + (64 - offset) % 64;
    size_t target_bytes = bytes_of(k->to, elements);
    for (int s = 0; s < count; s++) {
        char *at = source_memory[s] + offset * (size_t)(s + 1) % 64;
        sources[s] = memcpy(at, values[s], bytes_of(k->from, elements));
    }
    if (variant & 1)
        pass.partial = memcpy(partial_memory + offset * 5 % 64, partial_values,
                              bytes_of(reduce_accumulator(k->from), elements));
    pass.sources = sources;
    pass.targets = (void *const[]){target};
    memset(target_memory, GUARD_BYTE, 256 + target_bytes);
    reduce_pick(set, k->operation, k->from, k->to)(&pass);
    assert_expected(set, k, variant, count, elements, target);
    assert_true(is_guarded(target_memory, (size_t)(target - target_memory)));
    assert_true(is_guarded(target + target_bytes, 64));
}

static void check_at(enum reduce_set set, const struct kernel *k, size_t elements, size_t offset)
{
    int variant = (int)(offset / 3 % VARIANTS);
    check_variant(set, k, elements, offset, variant);
    check_variant(set, k, elements, offset, variant | STREAMS);
}

static void check_short(enum reduce_set set, const struct kernel *k)
{
    for (size_t elements = 0; elements <= SHORT_MOST; elements++)
        for (size_t offset = 0; offset < 64; offset++)
            check_at(set, k, elements, offset);
}

static void lengths_0_to_70_at_every_offset(void **state)
{
    for_each_kernel(check_short, SHORT_MOST);
}

static void check_long(enum reduce_set set, const struct kernel *k)
{
    static const size_t lengths[] = {127, 255, 256, 1023, 1024, 1025, 2047, 2048, 2049, 2600};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t offset = 0; offset < 16; offset++)
            check_at(set, k, lengths[l], offset);
}

static void lengths_around_a_block(void **state) { for_each_kernel(check_long, LONG_MOST); }

/* --- memory past the end --- */

#define FENCED_ARRAYS (REDUCE_SOURCES_MAX + 2)
static char *fenced_end[FENCED_ARRAYS]; /* the byte at this address must not be accessed */

static void make_fences(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < FENCED_ARRAYS; i++) {
        char *memory =
            mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(memory, MAP_FAILED);
        assert_int_equal(mprotect(memory + page, page, PROT_NONE), 0);
        fenced_end[i] = memory + page;
    }
}

static void check_fenced(enum reduce_set set, const struct kernel *k)
{
    for (size_t elements = 0; elements <= SHORT_MOST; elements++)
        for (int variant = 0; variant < VARIANTS + STREAMS; variant++) {
            int count = 1 + (int)elements % REDUCE_SOURCES_MAX;
            struct reduce_pass pass = pass_of(k, variant, count, elements);
            const void *sources[REDUCE_SOURCES_MAX];
            size_t bytes = bytes_of(k->from, elements);
            size_t partial_bytes = bytes_of(reduce_accumulator(k->from), elements);
            void *target = fenced_end[REDUCE_SOURCES_MAX] - bytes_of(k->to, elements);
            for (int s = 0; s < count; s++)
                sources[s] = memcpy(fenced_end[s] - bytes, values[s], bytes);
            if (variant & 1)
                pass.partial = memcpy(fenced_end[REDUCE_SOURCES_MAX + 1] - partial_bytes,
                                      partial_values, partial_bytes);
            pass.sources = sources;
            pass.targets = &target;
            reduce_pick(set, k->operation, k->from, k->to)(&pass);
            assert_expected(set, k, variant, count, elements, target);
        }
}

static void nothing_past_an_end_is_touched(void **state)
{
    make_fences();
    for_each_kernel(check_fenced, SHORT_MOST);
}

/* --- targets that are sources, many targets, many passes --- */

/* The last target is also the first source, or the partial result if the partial result has the
 * same dtype. */
static void check_alias(enum reduce_set set, const struct kernel *k)
{
    enum { ELEMENTS = 1100, TARGETS = 3 };
    static char targets_memory[TARGETS][ROOM_BYTES] __attribute__((aligned(LINE_BYTES)));
    size_t bytes = bytes_of(k->from, ELEMENTS);
    for (int variant = 0; variant < VARIANTS + STREAMS; variant++)
        for (int aliased = 0; aliased < TARGETS; aliased++) {
            int count = 1 + (variant + aliased) % REDUCE_SOURCES_MAX;
            struct reduce_pass pass = pass_of(k, variant, count, ELEMENTS);
            const void *sources[REDUCE_SOURCES_MAX];
            void *targets[TARGETS];
            for (int t = 0; t < TARGETS; t++)
                targets[t] = targets_memory[t];
            for (int s = 0; s < count; s++)
                sources[s] = memcpy(source_memory[s], values[s], bytes);
            if (k->from == k->to)
                sources[count - 1] = memcpy(targets[aliased], values[count - 1], bytes);
            else
                pass.partial = memcpy(targets[aliased], partial_values, bytes_of(k->to, ELEMENTS));
            if (k->from == k->to && variant & 1)
                pass.partial = memcpy(partial_memory, partial_values,
                                      bytes_of(reduce_accumulator(k->from), ELEMENTS));
            pass.sources = sources;
            pass.targets = targets;
            pass.targets_count = TARGETS;
            reduce_pick(set, k->operation, k->from, k->to)(&pass);
            for (int t = 0; t < TARGETS; t++)
                assert_expected(set, k, variant | (k->from != k->to), count, ELEMENTS, targets[t]);
        }
}

static void a_target_may_be_a_source_or_the_partial_result(void **state)
{
    for_each_kernel(check_alias, 1100);
}

/* Streaming stores need targets with equal offsets in their cache lines. Tests equal offsets, and
 * one different offset. */
static void check_places(enum reduce_set set, const struct kernel *k)
{
    enum { ELEMENTS = 1100, MOST = REDUCE_TARGETS_MAX };
    static char memory[MOST][ROOM_BYTES] __attribute__((aligned(LINE_BYTES)));
    const void *sources[REDUCE_SOURCES_MAX];
    void *targets[MOST];
    for (int s = 0; s < REDUCE_SOURCES_MAX; s++)
        sources[s] = values[s];
    for (int odd = 0; odd <= MOST; odd++)
        for (size_t offset = 0; offset < 2 * LINE_BYTES; offset += 12) {
            struct reduce_pass pass = pass_of(k, STREAMS, 3, ELEMENTS);
            memset(memory, GUARD_BYTE, sizeof memory);
            for (int t = 0; t < MOST; t++)
                targets[t] = memory[t] + LINE_BYTES + offset + (t == odd ? 8 : 0);
            pass.sources = sources;
            pass.targets = targets;
            pass.targets_count = MOST;
            reduce_pick(set, k->operation, k->from, k->to)(&pass);
            for (int t = 0; t < MOST; t++) {
                char *end = (char *)targets[t] + bytes_of(k->to, ELEMENTS);
                assert_expected(set, k, STREAMS, 3, ELEMENTS, targets[t]);
                assert_true(is_guarded(memory[t], (size_t)((char *)targets[t] - memory[t])));
                assert_true(is_guarded(end, LINE_BYTES));
            }
        }
}

static void targets_past_the_cache_get_the_same_bytes_at_any_address(void **state)
{
    for_each_kernel(check_places, 1100);
}

/* Passes of at most 8 sources must give the same bits as one pass by definition. Halves are rounded
 * only once. */
static void check_passes(enum reduce_set set, const struct kernel *k)
{
    enum { MANY = 21, ELEMENTS = 100 };
    static double many[MANY][ELEMENTS], held[ELEMENTS], result[ELEMENTS], want;
    const void *sources[MANY];
    enum reduce_dtype wide = reduce_accumulator(k->from);
    uint32_t divisor = reduce_divides(k->from) ? MANY : 0;
    float factors[MANY];
    for (int s = 0; s < MANY; s++) {
        factors[s] = weights[s % REDUCE_SOURCES_MAX];
        for (size_t i = 0; i < ELEMENTS; i++)
            reference_any(k->from, (char *)many[s] + bytes_of(k->from, i));
        sources[s] = many[s];
    }
    for (int done = 0, width = 0; done < MANY; done += width) {
        width = MANY - done < REDUCE_SOURCES_MAX ? MANY - done : REDUCE_SOURCES_MAX;
        bool is_last = done + width == MANY;
        void *target = is_last ? (void *)result : (void *)held;
        reduce_pick(set, k->operation, k->from, is_last ? k->to : wide)(
            &(struct reduce_pass){&target, 1, sources + done, width, done ? held : NULL, ELEMENTS,
                                  is_last ? divisor : 0, false, factors + done});
    }
    const struct reduce_pass whole = {.sources = sources,
                                      .sources_count = MANY,
                                      .elements = ELEMENTS,
                                      .divisor = divisor,
                                      .weights = factors};
    for (size_t i = 0; i < ELEMENTS; i++) {
        reference_element(k->operation, k->from, k->to, &whole, i, &want);
        assert_true(reference_is_same(k->to, (char *)result + bytes_of(k->to, i), &want));
    }
}

static void passes_give_the_bits_of_one(void **state) { for_each_kernel(check_passes, 1); }

/* A copy keeps all bits of a NaN, for any operation without weights (R8). */
static void check_copy(enum reduce_set set, const struct kernel *k)
{
    enum { ELEMENTS = 1100 };
    static char copy[ROOM_BYTES];
    if (k->from != k->to || k->operation == REDUCE_WEIGHTED)
        return;
    memset(copy, 0, sizeof copy);
    reduce_pick(set, k->operation, k->from, k->to)(&(struct reduce_pass){
        (void *[]){copy}, 1, (const void *[]){values[0]}, 1, NULL, ELEMENTS, 1});
    assert_memory_equal(copy, values[0], bytes_of(k->from, ELEMENTS));
}

static void one_source_is_copied_bit_by_bit(void **state) { for_each_kernel(check_copy, 1100); }

/* --- weights --- */

static void check_ones(enum reduce_set set, const struct kernel *k)
{
    enum { ELEMENTS = 1100 };
    static const float ones[REDUCE_SOURCES_MAX] = {1, 1, 1, 1, 1, 1, 1, 1};
    static char plain[ROOM_BYTES], weighted[ROOM_BYTES];
    const void *sources[REDUCE_SOURCES_MAX];
    if (k->operation != REDUCE_WEIGHTED)
        return;
    for (int s = 0; s < REDUCE_SOURCES_MAX; s++)
        sources[s] = values[s];
    struct reduce_pass pass = {.targets = (void *[]){plain},
                               .targets_count = 1,
                               .sources = sources,
                               .sources_count = REDUCE_SOURCES_MAX,
                               .elements = ELEMENTS,
                               .divisor = REDUCE_SOURCES_MAX,
                               .weights = ones};
    reduce_pick(set, REDUCE_SUM, k->from, k->to)(&pass);
    pass.targets = (void *[]){weighted};
    reduce_pick(set, REDUCE_WEIGHTED, k->from, k->to)(&pass);
    for (size_t i = 0; i < ELEMENTS; i++)
        assert_true(
            reference_is_same(k->to, plain + bytes_of(k->to, i), weighted + bytes_of(k->to, i)));
}

static void weights_of_one_give_the_bits_of_a_plain_sum(void **state)
{
    for_each_kernel(check_ones, 1100);
}

static void integers_have_no_weights(void **state)
{
    assert_null(reduce_pick(REDUCE_BEST, REDUCE_WEIGHTED, REDUCE_I32, REDUCE_I32));
    assert_null(reduce_pick(REDUCE_BEST, REDUCE_WEIGHTED, REDUCE_I64, REDUCE_I64));
}

/* --- halves --- */

/* Converts all values of one dtype to f32, and back. */
static void check_all_halves(enum reduce_set set, enum reduce_dtype dtype)
{
    static uint16_t halves[65536], back[65536];
    static float wide[65536], zeros[65536];
    for (unsigned i = 0; i < 65536; i++)
        halves[i] = (uint16_t)i;
    reduce_pick(set, REDUCE_MIN, dtype, REDUCE_F32)(
        &(struct reduce_pass){(void *[]){wide}, 1, (const void *[]){halves}, 1, NULL, 65536, 0});
    for (unsigned i = 0; i < 65536; i++) {
        float want = (float)reference_from_half((uint16_t)i, dtype);
        if (!reference_is_same(REDUCE_F32, &wide[i], &want))
            fail_msg("%s, %s %#x becomes %a", reduce_set_name(set), reduce_dtype_name(dtype), i,
                     (double)wide[i]);
    }
    /* with no source, a partial result is only converted back; the sum of -0 and 0 is 0 */
    reduce_pick(set, REDUCE_SUM, dtype, dtype)(
        &(struct reduce_pass){(void *[]){back}, 1, (const void *[]){zeros}, 1, wide, 65536, 0});
    for (unsigned i = 0; i < 65536; i++)
        if (i != 0x8000 && !reference_is_same(dtype, &back[i], &halves[i]))
            fail_msg("%s, %s %#x comes back as %#x", reduce_set_name(set), reduce_dtype_name(dtype),
                     i, back[i]);
}

/* Tests the rounding of every value, and of every tie between two values. For each of these floats,
 * also tests the next lower and the next higher float. */
static void check_rounding(enum reduce_set set, enum reduce_dtype dtype)
{
    static float around[65536 * 6];
    static uint16_t rounded[65536 * 6];
    static const uint16_t zeros[65536 * 6];
    size_t count = 0;
    for (unsigned i = 0; i < 65535; i++) {
        double here = reference_from_half((uint16_t)i, dtype);
        double next = reference_from_half((uint16_t)(i + 1), dtype);
        const double at[] = {here, here / 2 + next / 2};
        for (int j = 0; j < 2; j++)
            for (int step = -1; step <= 1; step++) {
                float value = (float)at[j];
                uint32_t bits;
                memcpy(&bits, &value, sizeof bits);
                bits += (uint32_t)step;
                memcpy(&around[count++], &bits, sizeof bits);
            }
    }
    reduce_pick(set, REDUCE_SUM, dtype, dtype)(&(struct reduce_pass){
        (void *[]){rounded}, 1, (const void *[]){zeros}, 1, around, count, 0});
    for (size_t i = 0; i < count; i++) {
        uint16_t want = reference_half(around[i] + 0.0f, dtype);
        if (!reference_is_same(dtype, &rounded[i], &want))
            fail_msg("%s, %s: %a becomes %#x, expected %#x", reduce_set_name(set),
                     reduce_dtype_name(dtype), (double)around[i], rounded[i], want);
    }
}

static void for_each_half(void (*check)(enum reduce_set, enum reduce_dtype))
{
    for (enum reduce_set set = REDUCE_C; set < REDUCE_SETS; set++)
        if (strcmp(reduce_set_name(set), "?") != 0) {
            check(set, REDUCE_F16);
            check(set, REDUCE_BF16);
        }
}

static void all_65536_halves_become_their_value_and_come_back(void **state)
{
    for_each_half(check_all_halves);
}

static void check_conversion(enum reduce_dtype dtype, const float *wide, size_t elements)
{
    static uint16_t halves[4096 + 1];
    static float back[4096 + 1];
    halves[elements] = 0x1234;
    back[elements] = 42;
    reduce_convert(REDUCE_F32, dtype, wide, halves, elements);
    reduce_convert(dtype, REDUCE_F32, halves, back, elements);
    assert_true(halves[elements] == 0x1234 && back[elements] == 42);
    for (size_t i = 0; i < elements; i++) {
        uint16_t want = reference_half(wide[i], dtype);
        float want_back = (float)reference_from_half(want, dtype);
        assert_true(reference_is_same(dtype, &halves[i], &want));
        assert_true(reference_is_same(REDUCE_F32, &back[i], &want_back));
    }
}

static void values_are_converted_to_halves_and_back_as_sums_are(void **state)
{
    static float wide[4096];
    for (size_t i = 0; i < 4096; i++)
        reference_any(REDUCE_F32, &wide[i]);
    wide[3] = -0.0f;
    for (enum reduce_dtype dtype = REDUCE_F16; dtype <= REDUCE_BF16; dtype++) {
        for (size_t elements = 0; elements <= 70; elements++)
            check_conversion(dtype, wide, elements);
        check_conversion(dtype, wide, 1025);
        check_conversion(dtype, wide, 4096);
        assert_true(reduce_converts(REDUCE_F32, dtype) && reduce_converts(dtype, REDUCE_F32));
        assert_false(reduce_converts(REDUCE_F64, dtype) || reduce_converts(dtype, REDUCE_I32));
    }
    assert_true(reduce_converts(REDUCE_I64, REDUCE_I64));
    assert_false(reduce_converts(0, 0) || reduce_converts(REDUCE_F16, REDUCE_BF16));
}

static void halves_are_rounded_to_nearest_and_ties_to_even(void **state)
{
    for_each_half(check_rounding);
}

/* --- instruction sets --- */

static void a_set_is_found_by_name(void **state)
{
    enum reduce_set set = REDUCE_AVX2;
    assert_int_equal(reduce_set_find("c", &set), 0);
    assert_int_equal(set, REDUCE_C);
    assert_int_equal(reduce_set_find("best", &set), 0);
    assert_int_equal(set, REDUCE_BEST);
    assert_int_equal(reduce_set_find("sse9", &set), -EINVAL);
    assert_int_equal(reduce_set_find("", &set), -EINVAL);
    assert_int_equal(set, REDUCE_BEST);
    for (enum reduce_set s = REDUCE_C; s < REDUCE_SETS; s++) {
        bool is_here = reduce_pick(s, REDUCE_SUM, REDUCE_F32, REDUCE_F32);
        assert_string_not_equal(reduce_set_name(REDUCE_BEST), "?");
        if (is_here)
            assert_int_equal(reduce_set_find(reduce_set_name(s), &set), 0);
        print_message("# %s: %s\n",
                      s == REDUCE_C      ? "c"
                      : s == REDUCE_AVX2 ? "avx2"
                                         : "avx512",
                      is_here ? "here" : "not on this machine");
    }
    assert_string_equal(reduce_set_name((enum reduce_set)99), "?");
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
        cmocka_unit_test(a_set_is_found_by_name),
        cmocka_unit_test(all_65536_halves_become_their_value_and_come_back),
        cmocka_unit_test(values_are_converted_to_halves_and_back_as_sums_are),
        cmocka_unit_test(halves_are_rounded_to_nearest_and_ties_to_even),
        cmocka_unit_test(lengths_0_to_70_at_every_offset),
        cmocka_unit_test(lengths_around_a_block),
        cmocka_unit_test(nothing_past_an_end_is_touched),
        cmocka_unit_test(a_target_may_be_a_source_or_the_partial_result),
        cmocka_unit_test(targets_past_the_cache_get_the_same_bytes_at_any_address),
        cmocka_unit_test(passes_give_the_bits_of_one),
        cmocka_unit_test(one_source_is_copied_bit_by_bit),
        cmocka_unit_test(weights_of_one_give_the_bits_of_a_plain_sum),
        cmocka_unit_test(integers_have_no_weights),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
