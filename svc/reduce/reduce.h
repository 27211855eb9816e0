/* Sums and other reductions. Pure functions for any thread: no state, no allocation, no I/O.
 *
 * R1: sources are added in the given order, ((s0 + s1) + s2) + ..., and the sum is divided once at
 * the end. The same inputs produce the same bits on every machine, with every instruction set and
 * any number of passes. */
#ifndef GRADPOOL_REDUCE_REDUCE_H
#define GRADPOOL_REDUCE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Element types. The numbers are also used in messages and in gradpool.h. */
enum reduce_dtype {
    REDUCE_F32 = 1,
    REDUCE_F64 = 2,
    REDUCE_F16 = 3,  /* IEEE 754 binary16 */
    REDUCE_BF16 = 4, /* the upper half of a float */
    REDUCE_I32 = 5,
    REDUCE_I64 = 6,
};
#define REDUCE_DTYPES 7 /* the largest number plus one */

/* Operations on the sources. A mean is a sum with a divisor. Integers wrap around, and have no
 * weighted sum. Minimum and maximum return NaN if any input is NaN (R3). */
enum reduce_operation {
    REDUCE_SUM = 1,
    REDUCE_MIN = 2,
    REDUCE_MAX = 3,
    REDUCE_PRODUCT = 4,
    REDUCE_WEIGHTED = 5, /* a sum of products of source and weight (R12) */
};
#define REDUCE_OPERATIONS 6

/* Instruction set of the kernels. All sets produce the same bits (R5). */
enum reduce_set { REDUCE_BEST = 0, REDUCE_C = 1, REDUCE_AVX2 = 2, REDUCE_AVX512 = 3 };
#define REDUCE_SETS 4

/* Maximum number of sources in one pass. More sources need several passes; each pass uses the
 * partial result of the previous pass (R7). */
#define REDUCE_SOURCES_MAX 8
#define REDUCE_TARGETS_MAX 8

/* One pass of a reduction. The sources are reduced in order, after the partial result if there is
 * one. The result is stored in each target. */
struct reduce_pass {
    void *const *targets;
    int targets_count; /* 1 to REDUCE_TARGETS_MAX */
    const void *const *sources;
    int sources_count; /* 1 to REDUCE_SOURCES_MAX */
    /* partial result, in the dtype of the accumulator; NULL: this is the first pass */
    const void *partial;
    size_t elements;
    uint32_t divisor; /* divisor of the sum; 0 or 1: no division; integers are never divided */
    /* The targets are stored without filling the cache, because they do not fit into the cache or
     * are not read soon. A kernel does so only if the instruction set supports these stores and all
     * targets have the same offset in their cache lines. The stores are visible to other threads
     * before any later store (R10). Ignored by updates. */
    bool streams;
    /* weight of each source, for REDUCE_WEIGHTED and for updates; NULL: an update by a sum without
     * weights */
    const float *weights;
};

/* Runs one pass. A target may be identical to a source or the partial result if their dtypes are
 * the same; any other overlap is undefined. Pointers need no alignment. Cost: one read of each
 * source, one store to each target. */
typedef void (*reduce_fn)(const struct reduce_pass *pass);

/* Finds an instruction set. `name`: "c", "avx2", "avx512" or "best". Returns 0, -EINVAL for another
 * name, or -ENOTSUP if this machine does not have the set. */
int reduce_set_find(const char *name, enum reduce_set *ret_set);
/* Returns the name of the set that is used, which is never "best"; "?" if reduce_pick() returns
 * NULL. */
const char *reduce_set_name(enum reduce_set set);

/* Returns the kernel from sources of dtype `from` to targets of dtype `to`: either `from`,
 * or the dtype of its accumulator. Returns NULL if there is no such kernel
 * on this machine. */
reduce_fn reduce_pick(enum reduce_set set, enum reduce_operation operation, enum reduce_dtype from,
                      enum reduce_dtype to);

/* The argument `dtype` of these four functions may come unchecked from a peer. For an unknown dtype
 * the functions return 0, "?", 0 and false, in this order. */
size_t reduce_element_bytes(unsigned dtype);
const char *reduce_dtype_name(unsigned dtype);
/* Returns the dtype of a partial result: f32 for f16 and bf16, otherwise the same dtype (R7). */
enum reduce_dtype reduce_accumulator(unsigned dtype);
/* Returns whether a mean of this dtype can be computed. */
bool reduce_divides(unsigned dtype);

/* Returns whether reduce_convert() can convert: to the same dtype, or between f32 and f16 or
 * bf16. */
bool reduce_converts(unsigned from, unsigned to);
/* Converts between dtypes for which reduce_converts() returns true. f16 and bf16 are rounded to
 * nearest, ties to even. Source and target must not overlap. */
void reduce_convert(unsigned from, unsigned to, const void *source, void *target, size_t elements);

/* Returns the sum of the squares of `elements` values of a known dtype, added in order in double
 * precision. */
double reduce_squares(unsigned dtype, const void *values, size_t elements);
/* Returns the sum of the products of `elements` f32 values, in double. The sum is computed as 32
 * partial sums in a fixed order (R13), so the bits are the same with each instruction set. Pointers
 * need no alignment. */
double reduce_products(enum reduce_set set, const float *a, const float *b, size_t elements);

#endif
