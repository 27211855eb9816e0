/* The sums. Pure: no state, no allocation, no I/O.
 *
 * R1: sources are added in the order given, ((s0 + s1) + s2) + ..., then divided once; the same
 * inputs give the same bits on every machine, instruction set and number of passes. */
#ifndef GRADPOOL_REDUCE_REDUCE_H
#define GRADPOOL_REDUCE_REDUCE_H

#include <stddef.h>
#include <stdint.h>

enum reduce_dtype { REDUCE_F32 = 1 };
enum reduce_operation { REDUCE_SUM = 1 };

/* Most sources of one pass; more are summed in passes, the partial result first (R1 holds). */
#define REDUCE_SOURCES_MAX 8
#define REDUCE_TARGETS_MAX 8

/* targets[0..targets_count) each get the reduction of sources[0..sources_count), both counts from
 * 1 to their maximum. `divisor` 0 or 1: no division. A target may be exactly a source; partial
 * overlap is undefined. Pointers need the alignment of the element only.
 * Cost: one pass over each source, one store to each target. */
typedef void (*reduce_fn)(void *const targets[], int targets_count, const void *const sources[],
                          int sources_count, size_t elements, uint32_t divisor);

/* NULL: no such row. */
reduce_fn reduce_pick(enum reduce_operation operation, enum reduce_dtype dtype);

/* Bytes of an element; 0 for an unknown dtype (values from peers may be passed as they come). */
size_t reduce_element_bytes(unsigned dtype);
/* "f32"; "?" for an unknown one. */
const char *reduce_dtype_name(unsigned dtype);

#endif
