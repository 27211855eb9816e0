/* Sums of squares, in double precision and in order, with the same bits on every machine (R1). Owns
 * nothing. f16 and bf16 are converted in blocks that fit into the cache. */
#include "svc/reduce/reduce.h"

#include <string.h>

#define BLOCK 256

/* Sums the squares of values of a C type. Values may be unaligned, so memcpy() loads them. */
#define SQUARES(type)                                                              \
    static double squares_##type(const void *values, size_t elements)              \
    {                                                                              \
        double sum = 0;                                                            \
        for (size_t i = 0; i < elements; i++) {                                    \
            type value;                                                            \
            memcpy(&value, (const char *)values + i * sizeof value, sizeof value); \
            sum += (double)value * (double)value;                                  \
        }                                                                          \
        return sum;                                                                \
    }
SQUARES(float)
SQUARES(double)
SQUARES(int32_t)
SQUARES(int64_t)

static double squares_half(unsigned dtype, const void *values, size_t elements)
{
    reduce_fn widen = reduce_pick(REDUCE_BEST, REDUCE_SUM, dtype, REDUCE_F32);
    size_t element_bytes = reduce_element_bytes(dtype);
    float block[BLOCK];
    void *target = block;
    double sum = 0;
    for (size_t at = 0; at < elements; at += BLOCK) {
        const void *source = (const char *)values + at * element_bytes;
        size_t count = elements - at < BLOCK ? elements - at : BLOCK;
        widen(&(struct reduce_pass){.targets = &target,
                                    .targets_count = 1,
                                    .sources = &source,
                                    .sources_count = 1,
                                    .elements = count});
        for (size_t i = 0; i < count; i++)
            sum += (double)block[i] * (double)block[i];
    }
    return sum;
}

double reduce_squares(unsigned dtype, const void *values, size_t elements)
{
    switch (dtype) {
    case REDUCE_F32: return squares_float(values, elements);
    case REDUCE_F64: return squares_double(values, elements);
    case REDUCE_I32: return squares_int32_t(values, elements);
    case REDUCE_I64: return squares_int64_t(values, elements);
    default: return squares_half(dtype, values, elements);
    }
}
