/* Computes reductions by their definition, which is slow. The file uses only the dtype numbers of
 * svc/reduce, and none of its code. */
#include "test/unit/reduce/reduce_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* number of fraction bits, smallest normal exponent, largest exponent */
struct format {
    int fraction, least, most;
};
static const struct format formats[REDUCE_DTYPES] = {
    [REDUCE_F16] = {10, -14, 15}, [REDUCE_BF16] = {7, -126, 127}};

double reference_from_half(uint16_t bits, enum reduce_dtype dtype)
{
    const struct format *f = &formats[dtype];
    int biased = (bits & 0x7fff) >> f->fraction, fraction = bits & ((1 << f->fraction) - 1);
    double sign = bits >> 15 ? -1.0 : 1.0;
    if (biased == f->most - f->least + 2)
        return fraction ? NAN : sign * INFINITY;
    if (biased == 0)
        return sign * ldexp(fraction, f->least - f->fraction);
    return sign * ldexp(fraction + (1 << f->fraction), biased - 1 + f->least - f->fraction);
}

uint16_t reference_half(double value, enum reduce_dtype dtype)
{
    const struct format *f = &formats[dtype];
    unsigned sign = signbit(value) ? 0x8000 : 0, special = (unsigned)(f->most - f->least + 2);
    if (isnan(value))
        return (uint16_t)(special << f->fraction | 1);
    value = fabs(value);
    int exponent = value > 0 && !isinf(value) ? ilogb(value) : f->least;
    exponent = exponent < f->least ? f->least : exponent;
    if (isinf(value) || exponent > f->most)
        return (uint16_t)(sign | special << f->fraction);
    /* rint() rounds to a multiple of the last bit, ties to even; a carry may reach the next
     * exponent, or infinity */
    unsigned units = (unsigned)rint(ldexp(value, f->fraction - exponent));
    unsigned below = (unsigned)(exponent - f->least) << f->fraction;
    return (uint16_t)(sign | (units + below));
}

/* --- one element in the type of its accumulation --- */

union held {
    float f32;
    double f64;
    uint32_t i32;
    uint64_t i64;
};

static union held load(enum reduce_dtype dtype, const void *array, size_t index)
{
    union held held = {0};
    uint16_t half;
    size_t bytes = reduce_element_bytes(dtype);
    const char *at = (const char *)array + index * bytes;
    if (dtype == REDUCE_F16 || dtype == REDUCE_BF16) {
        memcpy(&half, at, sizeof half);
        held.f32 = (float)reference_from_half(half, dtype);
    } else {
        memcpy(&held, at, bytes);
    }
    return held;
}

static double combine_floats(enum reduce_operation operation, double have, double next)
{
    switch (operation) {
    case REDUCE_SUM:
    case REDUCE_WEIGHTED: return have + next;
    case REDUCE_PRODUCT: return have * next;
    default: break;
    }
    if (isnan(have) || isnan(next))
        return NAN;
    if (operation == REDUCE_MIN)
        return next < have ? next : have;
    return next > have ? next : have;
}

static uint64_t combine_integers(enum reduce_operation operation, uint64_t have, uint64_t next,
                                 bool takes_next)
{
    switch (operation) {
    case REDUCE_SUM: return have + next;
    case REDUCE_PRODUCT: return have * next;
    default: return takes_next ? next : have;
    }
}

static union held combine(enum reduce_operation operation, enum reduce_dtype dtype, union held have,
                          union held next)
{
    union held result = {0};
    bool is_min = operation == REDUCE_MIN;
    int32_t a = (int32_t)have.i32, b = (int32_t)next.i32;
    int64_t c = (int64_t)have.i64, d = (int64_t)next.i64;
    switch (dtype) {
    /* a double represents sum and product of two floats so precisely that a second rounding changes
     * nothing */
    case REDUCE_F32: result.f32 = (float)combine_floats(operation, have.f32, next.f32); break;
    case REDUCE_F64: result.f64 = combine_floats(operation, have.f64, next.f64); break;
    case REDUCE_I32:
        result.i32 =
            (uint32_t)combine_integers(operation, have.i32, next.i32, is_min ? b < a : b > a);
        break;
    default:
        result.i64 = combine_integers(operation, have.i64, next.i64, is_min ? d < c : d > c);
        break;
    }
    return result;
}

/* A double represents the product of two floats exactly, so the product is rounded once. */
static union held weigh(enum reduce_operation operation, enum reduce_dtype dtype, union held held,
                        const struct reduce_pass *pass, int source)
{
    if (operation == REDUCE_WEIGHTED && dtype == REDUCE_F32)
        held.f32 = (float)((double)held.f32 * (double)pass->weights[source]);
    if (operation == REDUCE_WEIGHTED && dtype == REDUCE_F64)
        held.f64 *= (double)pass->weights[source];
    return held;
}

static union held divide(enum reduce_dtype dtype, union held sum, uint32_t divisor)
{
    if (divisor > 1 && dtype == REDUCE_F32)
        sum.f32 /= (float)divisor;
    if (divisor > 1 && dtype == REDUCE_F64)
        sum.f64 /= (double)divisor;
    return sum;
}

void reference_element(enum reduce_operation operation, enum reduce_dtype from,
                       enum reduce_dtype to, const struct reduce_pass *pass, size_t index,
                       void *ret_element)
{
    enum reduce_dtype accumulator = reduce_accumulator(from);
    int next = pass->partial ? 0 : 1;
    union held sum =
        pass->partial ? load(accumulator, pass->partial, index)
                      : weigh(operation, accumulator, load(from, pass->sources[0], index), pass, 0);
    for (; next < pass->sources_count; next++)
        sum = combine(
            operation, accumulator, sum,
            weigh(operation, accumulator, load(from, pass->sources[next], index), pass, next));
    sum = divide(accumulator, sum, pass->divisor);
    if (to == REDUCE_F16 || to == REDUCE_BF16) {
        uint16_t half = reference_half(sum.f32, to);
        memcpy(ret_element, &half, sizeof half);
    } else {
        memcpy(ret_element, &sum, reduce_element_bytes(to));
    }
}

static bool is_nan(enum reduce_dtype dtype, const void *element)
{
    union held held = load(dtype, element, 0);
    switch (reduce_accumulator(dtype)) {
    case REDUCE_F32: return isnan(held.f32);
    case REDUCE_F64: return isnan(held.f64);
    default: return false;
    }
}

bool reference_is_same(enum reduce_dtype dtype, const void *left, const void *right)
{
    return memcmp(left, right, reduce_element_bytes(dtype)) == 0 ||
           (is_nan(dtype, left) && is_nan(dtype, right));
}

/* --- values --- */

static uint64_t any_bits(void)
{
    return (uint64_t)random() << 62 ^ (uint64_t)random() << 31 ^ (uint64_t)random();
}

static double any_real(void)
{
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0, -1.0};
    if (random() % 16 == 0)
        return special[(size_t)random() % (sizeof special / sizeof *special)];
    return ldexp((double)random() - (1 << 30), (int)(random() % 40) - 50);
}

void reference_any(enum reduce_dtype dtype, void *ret_element)
{
    uint64_t bits = any_bits();
    double real = any_real();
    float single = (float)real;
    bool takes_bits = random() % 4 == 0; /* random bits: all values, also denormals and NaN */
    size_t bytes = reduce_element_bytes(dtype);
    uint16_t half;
    memcpy(ret_element, &bits, bytes);
    if (takes_bits)
        return;
    switch (dtype) {
    case REDUCE_F32: memcpy(ret_element, &single, bytes); break;
    case REDUCE_F64: memcpy(ret_element, &real, bytes); break;
    case REDUCE_F16:
    case REDUCE_BF16:
        half = reference_half(real, dtype);
        memcpy(ret_element, &half, bytes);
        break;
    default: break;
    }
}
