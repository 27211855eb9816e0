/* Kernels for any machine, with 16-byte vectors, which every 64-bit processor has. All other
 * instruction sets are compared with these kernels (R5). reduce_arithmetic.h has the arithmetic,
 * reduce_fold.h the loops. */
#define VECTOR_BYTES 16
#define KERNELS reduce_kernels_c
#include "svc/reduce/reduce_table.h"
