/* The kernels for any machine, with 16-byte vectors, which every 64-bit processor has. All other
 * instruction sets are compared with this one (R5). Arithmetic is in reduce_arithmetic.h, the loops
 * are in reduce_fold.h. */
#define VECTOR_BYTES 16
#define KERNELS reduce_kernels_c
#include "svc/reduce/reduce_table.h"
