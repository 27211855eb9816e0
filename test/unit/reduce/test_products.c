/* Tests sums of products (R13). For all lengths and alignments, the bits are the same with every
 * instruction set, and no byte beyond the end is read. */
#include "svc/reduce/internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define STRANDS 32
#define LENGTHS_MOST 140
#define LONG 4097

/* Computes the sum by the definition of the tree. */
static double reference(const float *a, const float *b, size_t elements)
{
    double strand[STRANDS] = {0};
    for (size_t i = 0; i < elements; i++)
        strand[i % STRANDS] += (double)a[i] * (double)b[i];
    for (size_t half = STRANDS / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++)
            strand[j] += strand[j + half];
    return strand[0];
}

static float next_value(void)
{
    static uint32_t state = 12345;
    state = state * 1664525u + 1013904223u;
    return ldexpf((float)(int32_t)state, (int)(state >> 27) - 40);
}

static void expect_same(enum reduce_set set, const float *a, const float *b, size_t elements,
                        double want)
{
    double sum = reduce_products(set, a, b, elements);
    if (memcmp(&sum, &want, sizeof sum) != 0)
        fail_msg("%s, %zu elements: %a, expected %a", reduce_set_name(set), elements, sum, want);
}

static void for_each_set(const float *a, const float *b, size_t elements, double want)
{
    for (enum reduce_set set = REDUCE_C; set < REDUCE_SETS; set++) {
        if (reduce_kernels_of(set))
            expect_same(set, a, b, elements, want);
    }
}

static void every_set_has_the_bits_of_the_tree(void **state)
{
    static float a[LONG], b[LONG];
    for (size_t i = 0; i < LONG; i++) {
        a[i] = next_value();
        b[i] = next_value();
    }
    for (size_t elements = 0; elements <= LENGTHS_MOST; elements++) {
        for_each_set(a, b, elements, reference(a, b, elements));
        for_each_set(a, a, elements, reference(a, a, elements));
    }
    for_each_set(a, b, LONG, reference(a, b, LONG));
}

static void arrays_need_no_alignment_and_nothing_is_read_beyond_them(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = LENGTHS_MOST * sizeof(float);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    float values[LENGTHS_MOST];
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(mprotect(memory + page, page, PROT_NONE), 0);
    for (size_t i = 0; i < LENGTHS_MOST; i++)
        values[i] = next_value();
    for (size_t elements = 0; elements <= LENGTHS_MOST; elements++) {
        char *at = memory + page - elements * sizeof(float);
        memcpy(at, values, elements * sizeof(float));
        for_each_set((const float *)at, values, elements, reference(values, values, elements));
    }
    for (size_t offset = 1; offset < 64; offset++) {
        char *at = memcpy(memory + offset, values, bytes);
        for_each_set((const float *)(const void *)at, values, LENGTHS_MOST,
                     reference(values, values, LENGTHS_MOST));
    }
    munmap(memory, 2 * page);
}

static void infinite_and_nan_values_make_such_sums(void **state)
{
    float a[50] = {0}, b[50] = {0};
    a[33] = INFINITY;
    b[33] = 2;
    for (enum reduce_set set = REDUCE_C; set < REDUCE_SETS; set++) {
        if (!reduce_kernels_of(set))
            continue;
        assert_true(isinf(reduce_products(set, a, b, 50)));
        assert_true(isnan(reduce_products(set, a, (float[50]){0}, 50)));
        assert_true(reduce_products(set, a, b, 33) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_has_the_bits_of_the_tree),
        cmocka_unit_test(arrays_need_no_alignment_and_nothing_is_read_beyond_them),
        cmocka_unit_test(infinite_and_nan_values_make_such_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
