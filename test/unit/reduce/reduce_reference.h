/* Computes the expected result of a reduction, element by element. Unlike svc/reduce it uses
 * doubles, the definition of the half formats, and no vectors. */
#ifndef GRADPOOL_TEST_REDUCE_REFERENCE_H
#define GRADPOOL_TEST_REDUCE_REFERENCE_H

#include "svc/reduce/reduce.h"

/* Returns the bits of the half-precision number nearest to `value`; ties are rounded to even. */
uint16_t reference_half(double value, enum reduce_dtype dtype);
double reference_from_half(uint16_t bits, enum reduce_dtype dtype);

/* Writes the element `index` that `pass` must store, as an element of dtype `to`. */
void reference_element(enum reduce_operation operation, enum reduce_dtype from,
                       enum reduce_dtype to, const struct reduce_pass *pass, size_t index,
                       void *ret_element);

/* Returns whether the bits are equal, or both values are NaN. */
bool reference_is_same(enum reduce_dtype dtype, const void *left, const void *right);

/* Writes a random value: both signs, all magnitudes, zeros, denormals, infinities, NaN. */
void reference_any(enum reduce_dtype dtype, void *ret_element);

#endif
