/* The row store of a lane, alone in this process. Its cost is a lower bound (floor) for the cost of
 * a lane. Its rows are a replay of all updates of one worker. Rows are f32 with rule Adagrad. */
#ifndef GRADPOOL_BENCH_TABLES_FLOOR_H
#define GRADPOOL_BENCH_TABLES_FLOOR_H

#include <stddef.h>
#include <stdint.h>

struct floor;

/* Returns an empty store, or NULL if memory is missing. */
struct floor *floor_create(uint32_t dim, double rate, double epsilon);
void floor_free(struct floor *floor);

/* A batch in the order in which the store reads it fastest. */
struct floor_batch;
/* Sorts the keys, which are different from each other, with their gradients. NULL: no memory. */
struct floor_batch *floor_batch_create(const struct floor *floor, const uint64_t *keys,
                                       size_t count, const float *gradients);
void floor_batch_free(struct floor_batch *batch);
/* Updates the rows of the batch, and adds rows that the store does not have. Returns 0 or a
 * negative errno. */
int floor_apply(struct floor *floor, const struct floor_batch *batch);
/* Returns the values of the row; NULL: there is none. */
const float *floor_row(const struct floor *floor, uint64_t key);

#endif
