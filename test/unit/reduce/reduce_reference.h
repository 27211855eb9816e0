/* The right result of a reduction, element by element, computed differently from svc/reduce: halves
 * by the definition of their format in doubles, no vectors. */
#ifndef GRADPOOL_TEST_REDUCE_REFERENCE_H
#define GRADPOOL_TEST_REDUCE_REFERENCE_H

#include "svc/reduce/reduce.h"

/* Bits of the value nearest to `value`, ties to even. */
uint16_t reference_half(double value, enum reduce_dtype dtype);
double reference_from_half(uint16_t bits, enum reduce_dtype dtype);

/* The element `index` that `pass` must store, as an element of dtype `to`. */
void reference_element(enum reduce_operation operation, enum reduce_dtype from,
                       enum reduce_dtype to, const struct reduce_pass *pass, size_t index,
                       void *ret_element);

/* Equal bits, or both NaN. */
bool reference_is_same(enum reduce_dtype dtype, const void *left, const void *right);

/* A value with everything that makes trouble: both signs, all magnitudes, zeros, denormals,
 * infinities, NaN. */
void reference_any(enum reduce_dtype dtype, void *ret_element);

#endif
