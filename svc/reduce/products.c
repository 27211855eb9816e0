/* Sums of products of two arrays, for estimates over gradients. The kernels are in
 * reduce_products.h. Owns nothing. */
#include "svc/reduce/internal.h"

double reduce_products(enum reduce_set set, const float *a, const float *b, size_t elements)
{
    return reduce_kernels_of(set)->products(a, b, elements);
}
