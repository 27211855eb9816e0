/* A lane that is slow without using its core, for tests and benches (A35). */
#ifndef GRADPOOL_AGGREGATOR_SLOWING_H
#define GRADPOOL_AGGREGATOR_SLOWING_H

#include <stddef.h>
#include <stdint.h>

struct slowing {
    const uint32_t *ns_per_kib; /* that are summed; may change at any time. NULL: never slow */
    int64_t debt_ns;
};

/* One number for each lane, in the file that GRADPOOL_TEST_SLOW names. NULL: it is not set, or
 * cannot be (logged). */
const uint32_t *slowing_open(size_t lanes);
void slowing_close(const uint32_t *numbers, size_t lanes);
/* So much has been done. */
void slowing_owe(struct slowing *s, uint64_t bytes);
/* Sleeps for it, before the next is begun. */
void slowing_pay(struct slowing *s);

#endif
