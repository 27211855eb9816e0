/* What a job of `migrate` must get in every round, computed without a service: checksums, since
 * nobody keeps the results of hundreds of rounds. */
#ifndef GRADPOOL_BENCH_MIGRATE_REFERENCE_H
#define GRADPOOL_BENCH_MIGRATE_REFERENCE_H

#include "svc/reduce/update.h"

#include <stdbool.h>
#include <stdint.h>

#define REFERENCE_WORKERS_MAX 8

/* One tensor. In each round one element in REFERENCE_BLOCK differs from the round before. */
struct reference {
    uint64_t seed, tensor, elements;
    uint32_t workers;
    bool is_update; /* Adam on the mean; else the sum */
};

#define REFERENCE_BLOCK 4096

/* What Adam is given, in every round. */
extern const struct update_settings reference_settings;

/* The gradient of rank `rank` as it is before round 0, and then for `round`. */
void reference_fill(const struct reference *r, uint32_t rank, float *values);
void reference_stamp(const struct reference *r, uint32_t rank, uint32_t round, float *values);
/* What an update starts from. */
void reference_first(const struct reference *r, float *values);

/* Any bit of any element changes it. `first`: the place of values[0] in its tensor. */
uint64_t reference_checksum(const float *values, uint64_t first, uint64_t elements);

/* That of the result of each of `rounds` rounds. -ENOMEM. */
int reference_replay(const struct reference *r, uint32_t rounds, uint64_t *ret_checksums);

#endif
