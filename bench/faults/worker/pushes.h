/* Gradients of an elastic job: each says in its first elements whose it is and which one, so that
 * a result tells of which gradients it is. */
#ifndef GRADPOOL_BENCH_FAULTS_WORKER_PUSHES_H
#define GRADPOOL_BENCH_FAULTS_WORKER_PUSHES_H

#include "bench/faults/worker/ledger.h"

#include <stddef.h>
#include <stdint.h>

#define PUSH_ELEMENTS 120000        /* some pieces */
#define PUSH_END (2 * LEDGER_RANKS) /* behind two numbers of each rank: whether to end */
#define PUSH_FIRST (PUSH_END + 1)   /* from here on they are drawn */

struct pushes {
    struct ledger_push of[LEDGER_RANKS]; /* count 0: that rank was not there */
};

/* The gradient of that push: PUSH_ELEMENTS values; that of the end is whoever's, here 0. */
void pushes_draw(uint64_t seed, uint32_t rank, struct ledger_push push, float *ret_values);
/* Those of all who were there, in rank order, one behind the other in `memory`, which has room for
 * LEDGER_RANKS; how many. */
uint32_t pushes_draw_all(uint64_t seed, const struct pushes *pushes, float *memory,
                         const void *ret_gradients[LEDGER_RANKS]);
/* Two numbers a rank, as they were pushed, into pushes. False: nobody has pushed such ones. */
bool pushes_read(const double numbers[PUSH_END], struct pushes *ret_pushes);

#endif
