/* Kernels with 32-byte vectors, for processors with AVX2 and F16C. Only reduce.c calls them. This
 * file is compiled with its own flags. Its code must not run on other processors or be shared with
 * other files. */
#define VECTOR_BYTES 32
#define HAS_CONVERSIONS
#define HAS_STREAMS
#define KERNELS reduce_kernels_avx2
#include "svc/reduce/reduce_vector.h"

#include <immintrin.h>

inline_always vec choose(vec mask, vec yes, vec no)
{
    return (vec)_mm256_blendv_epi8((__m256i)no, (__m256i)yes, (__m256i)mask);
}

inline_always void stream(vec *at, vec v) { _mm256_stream_si256((__m256i *)at, (__m256i)v); }
inline_always void stream_end(void) { _mm_sfence(); }

inline_always u32_vec load_half(const void *at)
{
    return (u32_vec)_mm256_cvtepu16_epi32(_mm_loadu_si128(at));
}

/* Stores the lower half of each element of `bits`. The upper halves must be zero. */
inline_always void store_half(void *at, u32_vec bits)
{
    __m256i packed = _mm256_packus_epi32((__m256i)bits, (__m256i)bits);
    _mm_storeu_si128(at, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

inline_always vec load_f16(const void *at) { return (vec)_mm256_cvtph_ps(_mm_loadu_si128(at)); }

inline_always void store_f16(void *at, vec v)
{
    _mm_storeu_si128(at, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

#include "svc/reduce/reduce_table.h"
