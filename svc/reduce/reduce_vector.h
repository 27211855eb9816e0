/* Vectors of VECTOR_BYTES, a compiler extension. Included only by the files of instruction sets,
 * which may define their own conversions (reduce_arithmetic.h). */
#ifndef GRADPOOL_REDUCE_VECTOR_H
#define GRADPOOL_REDUCE_VECTOR_H

#include <stdint.h>
#include <string.h>

#define inline_always static inline __attribute__((always_inline))

/* A register without element type; the names of functions include the type. */
typedef uint64_t vec __attribute__((vector_size(VECTOR_BYTES)));
typedef float f32_vec __attribute__((vector_size(VECTOR_BYTES)));
typedef double f64_vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t i32_vec __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t u32_vec __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t i64_vec __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t u64_vec __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t u16_half_vec __attribute__((vector_size(VECTOR_BYTES / 2)));

#endif
