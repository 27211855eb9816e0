/* Kernels with 64-byte vectors, for processors with AVX-512 F, BW, DQ and VL. Only reduce.c calls
 * them. This file is compiled with its own flags. Its code must not run on other processors or be
 * shared with other files. */
#define VECTOR_BYTES 64
#define HAS_CONVERSIONS
#define HAS_STREAMS
#define KERNELS reduce_kernels_avx512
#include "svc/reduce/reduce_vector.h"

#include <immintrin.h>

inline_always vec choose(vec mask, vec yes, vec no)
{
    return (vec)_mm512_ternarylogic_epi64((__m512i)mask, (__m512i)yes, (__m512i)no, 0xca);
}

inline_always void stream(vec *at, vec v) { _mm512_stream_si512((__m512i *)at, (__m512i)v); }
inline_always void stream_end(void) { _mm_sfence(); }

inline_always u32_vec load_half(const void *at)
{
    return (u32_vec)_mm512_cvtepu16_epi32(_mm256_loadu_si256(at));
}

inline_always void store_half(void *at, u32_vec bits)
{
    _mm256_storeu_si256(at, _mm512_cvtepi32_epi16((__m512i)bits));
}

inline_always vec load_f16(const void *at) { return (vec)_mm512_cvtph_ps(_mm256_loadu_si256(at)); }

inline_always void store_f16(void *at, vec v)
{
    _mm256_storeu_si256(at, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

#include "svc/reduce/reduce_table.h"
