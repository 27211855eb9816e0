/* Gradients of an elastic job. The first elements contain rank and number of the push, so a result
 * shows which gradients it contains. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_PUSHES_H
#define GRADPOOL_BENCH_FAULTS_WORKER_PUSHES_H

#include "bench/faults/worker/ledger.h"

#include <stddef.h>
#include <stdint.h>

#define PUSH_ELEMENTS 120000 /* number of elements of a gradient; enough for several pieces */
/* index of the element that follows two numbers for each rank; its value is not 0 in the last
 * round */
#define PUSH_END (2 * LEDGER_RANKS)
#define PUSH_FIRST (PUSH_END + 1) /* index of the first pseudo-random element */

struct pushes {
    struct ledger_push of[LEDGER_RANKS]; /* count 0: the rank was not in the round */
};

/* Computes the gradient of a push: PUSH_ELEMENTS values. Element PUSH_END is 0, and
 * the caller may set this element. */
void pushes_draw(uint64_t seed, uint32_t rank, struct ledger_push push, float *ret_values);
/* Computes the gradients of all ranks of the round, in rank order, one after the other in `memory`,
 * which has room for LEDGER_RANKS. Returns their number. */
uint32_t pushes_draw_all(uint64_t seed, const struct pushes *pushes, float *memory,
                         const void *ret_gradients[LEDGER_RANKS]);
/* Reads the pushes from two numbers for each rank. False: no member pushed such numbers. */
bool pushes_read(const double numbers[PUSH_END], struct pushes *ret_pushes);

#endif
