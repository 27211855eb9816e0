/* Arithmetic on the elements of a register, the same for every instruction set. Never changes the
 * order, and never multiplies by a reciprocal (R1, R2). A set with HAS_CONVERSIONS defines
 * choose(), load_half(), store_half(), load_f16() and store_f16() itself, with the same bits (R5).
 * A set with HAS_STREAMS defines stream() and stream_end() (R10). */
#ifndef GRADPOOL_REDUCE_ARITHMETIC_H
#define GRADPOOL_REDUCE_ARITHMETIC_H

#include "svc/reduce/reduce_vector.h"

#include <string.h>

inline_always vec load_whole(const void *at)
{
    vec v;
    memcpy(&v, at, sizeof v);
    return v;
}
inline_always void store_whole(void *at, vec v) { memcpy(at, &v, sizeof v); }

#define load_f32 load_whole
#define load_f64 load_whole
#define load_i32 load_whole
#define load_i64 load_whole
#define store_f32 store_whole
#define store_f64 store_whole
#define store_i32 store_whole
#define store_i64 store_whole

/* --- functions that an instruction set may replace --- */

#ifndef HAS_CONVERSIONS
/* Returns `yes` or `no` for each element. The bits of an element in `mask` are all ones or all
 * zeros. */
inline_always vec choose(vec mask, vec yes, vec no) { return (yes & mask) | (no & ~mask); }

inline_always u32_vec load_half(const void *at)
{
    u16_half_vec v;
    memcpy(&v, at, sizeof v);
    return __builtin_convertvector(v, u32_vec);
}
inline_always void store_half(void *at, u32_vec bits)
{
    u16_half_vec v = __builtin_convertvector(bits, u16_half_vec);
    memcpy(at, &v, sizeof v);
}

/* Converts from f16. The bits are shifted to the exponent and fraction of a float, whose value is
 * then too small by a factor of 2^112. The product with this factor is exact, even for denormals.
 * The exponent of infinity and NaN is set separately. */
inline_always vec load_f16(const void *at)
{
    u32_vec half = load_half(at);
    f32_vec scaled = (f32_vec)((half & 0x7fff) << 13) * 0x1p112f;
    u32_vec special = (u32_vec)((half & 0x7c00) == 0x7c00) & 0x7f800000;
    return (vec)((u32_vec)scaled | special | (half & 0x8000) << 16);
}

/* Converts to f16, to nearest, ties to even. Below the smallest normal number, adding 0.5 rounds
 * the value, because the last bit of the sum is then the smallest denormal. Above the largest
 * number, the bits are those of infinity or greater. */
inline_always void store_f16(void *at, vec v)
{
    u32_vec bits = (u32_vec)v, sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    u32_vec small = (u32_vec)((f32_vec)size + 0.5f) - 0x3f000000;
    u32_vec normal = (size - (112u << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
    /* signed numbers: every instruction set compares them at least as fast as unsigned ones */
    i32_vec ordered = (i32_vec)size;
    vec is_small = (vec)(ordered < 0x38800000), is_large = (vec)(ordered >= 0x47800000);
    vec is_nan = (vec)(ordered > 0x7f800000);
    vec half = choose(is_small, (vec)small, (vec)normal);
    half = choose(is_large, (vec)((u32_vec){0} + 0x7c00), half);
    half = choose(is_nan, (vec)((u32_vec){0} + 0x7e00), half);
    store_half(at, (u32_vec)half | sign);
}
#endif

/* --- bf16: the upper half of a float, rounded to nearest, ties to even --- */

inline_always vec load_bf16(const void *at) { return (vec)(load_half(at) << 16); }

inline_always void store_bf16(void *at, vec v)
{
    u32_vec bits = (u32_vec)v;
    u32_vec rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    vec is_nan = (vec)((f32_vec)v != (f32_vec)v);
    u32_vec quiet = (bits >> 16) | 0x40;
    store_half(at, (u32_vec)choose(is_nan, (vec)quiet, (vec)rounded));
}

/* --- operations on `have` and `next`, in this order --- */

inline_always vec sum_f32(vec have, vec next) { return (vec)((f32_vec)have + (f32_vec)next); }
inline_always vec sum_f64(vec have, vec next) { return (vec)((f64_vec)have + (f64_vec)next); }
inline_always vec sum_i32(vec have, vec next) { return (vec)((u32_vec)have + (u32_vec)next); }
inline_always vec sum_i64(vec have, vec next) { return (vec)((u64_vec)have + (u64_vec)next); }

inline_always vec product_f32(vec have, vec next) { return (vec)((f32_vec)have * (f32_vec)next); }
inline_always vec product_f64(vec have, vec next) { return (vec)((f64_vec)have * (f64_vec)next); }
inline_always vec product_i32(vec have, vec next) { return (vec)((u32_vec)have * (u32_vec)next); }
inline_always vec product_i64(vec have, vec next) { return (vec)((u64_vec)have * (u64_vec)next); }

/* Minimum and maximum. If values are equal (-0 equals 0), the first value is kept. If a value is
 * NaN, the first NaN is kept (R3). */
#define BETTER(name, type, sign)                                                              \
    inline_always vec name(vec have, vec next)                                                \
    {                                                                                         \
        vec takes_next = (vec)((type)next sign(type) have) | (vec)((type)next != (type)next); \
        return choose(takes_next, next, have);                                                \
    }
BETTER(min_f32, f32_vec, <)
BETTER(min_f64, f64_vec, <)
BETTER(min_i32, i32_vec, <)
BETTER(min_i64, i64_vec, <)
BETTER(max_f32, f32_vec, >)
BETTER(max_f64, f64_vec, >)
BETTER(max_i32, i32_vec, >)
BETTER(max_i64, i64_vec, >)
#undef BETTER

inline_always vec divide_f32(vec sum, uint32_t n) { return (vec)((f32_vec)sum / (float)n); }
inline_always vec divide_f64(vec sum, uint32_t n) { return (vec)((f64_vec)sum / (double)n); }

/* Multiplies by the weight of a source. The product is rounded once (R12). */
inline_always vec weigh_f32(vec v, float weight) { return (vec)((f32_vec)v * weight); }
inline_always vec weigh_f64(vec v, float weight) { return (vec)((f64_vec)v * (double)weight); }

/* No kernel calls this function, because integers have no mean. */
inline_always vec divide_i32(vec sum, uint32_t n) { return sum; }
inline_always vec divide_i64(vec sum, uint32_t n) { return sum; }

#endif
