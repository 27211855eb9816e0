/* The kernels with 32-byte vectors: a processor with AVX2 and F16C, asked for by reduce.c alone.
 * Compiled with its own flags; nothing here may run, or be shared with other files, without them.
 */
#define VECTOR_BYTES 32
#define HAS_F16_CONVERSION
#define KERNELS reduce_kernels_avx2
#include "svc/reduce/reduce_vector.h"

#include <immintrin.h>

inline_always vec load_f16(const void *at) { return (vec)_mm256_cvtph_ps(_mm_loadu_si128(at)); }

inline_always void store_f16(void *at, vec v)
{
    _mm_storeu_si128(at, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

#include "svc/reduce/reduce_fold.h"
