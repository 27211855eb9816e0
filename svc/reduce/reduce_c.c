/* The kernels for any machine: 16 bytes at a time, which is what every 64-bit processor has.
 * The measure for every other instruction set (R5). Holds nothing of its own: the arithmetic is in
 * reduce_arithmetic.h, the way over the arrays in reduce_fold.h. */
#define VECTOR_BYTES 16
#define KERNELS reduce_kernels_c
#include "svc/reduce/reduce_table.h"
