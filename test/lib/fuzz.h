/* The interface between a fuzz target and its replay. */
#ifndef GRADPOOL_TEST_FUZZ_H
#define GRADPOOL_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* The target, with the name and type of libFuzzer. Passes the bytes to a parser, and asserts
 * conditions for all inputs. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* splitmix64: the same seed gives the same sequence on every machine. */
struct fuzz_random {
    uint64_t state;
};
uint64_t fuzz_random_next(struct fuzz_random *random);
/* Returns a number from 0 to below-1; `below` > 0. */
uint64_t fuzz_random_below(struct fuzz_random *random, uint64_t below);

/* Changes `data` (`bytes` bytes, space for `bytes_max`) in one to four places: bits, bytes,
 * integers at the limits of types, cuts, copies, pieces of `other`. Returns the new length. */
size_t fuzz_mutate(struct fuzz_random *random, uint8_t *data, size_t bytes, size_t bytes_max,
                   const uint8_t *other, size_t other_bytes);

#endif
