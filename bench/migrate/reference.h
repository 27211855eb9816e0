/* The expected results of a job of `migrate` in every round, computed without a service and stored
 * as checksums, because the results of hundreds of rounds do not fit in memory. */
#ifndef GRADPOOL_BENCH_MIGRATE_REFERENCE_H
#define GRADPOOL_BENCH_MIGRATE_REFERENCE_H

#include "svc/reduce/update.h"

#include <stdbool.h>
#include <stdint.h>

#define REFERENCE_WORKERS_MAX 8

/* One tensor. In each round one element in REFERENCE_BLOCK differs from the previous round. */
struct reference {
    uint64_t seed, tensor, elements;
    uint32_t workers;
    bool is_update; /* whether Adam updates parameters with the mean; otherwise results are sums */
};

#define REFERENCE_BLOCK 4096

/* Settings of Adam, equal in every round. */
extern const struct update_settings reference_settings;

/* reference_fill() writes the gradient of `rank` before round 0. reference_stamp() changes these
 * values to the gradient of `round`. */
void reference_fill(const struct reference *r, uint32_t rank, float *values);
void reference_stamp(const struct reference *r, uint32_t rank, uint32_t round, float *values);
/* Writes the first parameters for an update rule. */
void reference_first(const struct reference *r, float *values);

/* Returns a checksum over every bit of every element. `first`: position of values[0] in its
 * tensor. */
uint64_t reference_checksum(const float *values, uint64_t first, uint64_t elements);

/* Computes the checksums of the results of `rounds` rounds. Returns 0 or -ENOMEM. */
int reference_replay(const struct reference *r, uint32_t rounds, uint64_t *ret_checksums);

#endif
