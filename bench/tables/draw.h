/* Keys and gradients of each rank and clock, drawn from the seed, and the check of all rows.
 *
 * Gradients are small whole numbers, the rule is SGD, and its rate is 1. So a row is the negative
 * sum of its gradients, exactly, in any order of the pushes. Each worker knows the gradients of all
 * ranks, and can compute the sums (counted pushes). */
#ifndef GRADPOOL_BENCH_TABLES_DRAW_H
#define GRADPOOL_BENCH_TABLES_DRAW_H

#include "bench/tables/crew.h"

/* Returns a hash of three numbers. Different values of `b` give different hashes. */
uint64_t tables_mix(uint64_t a, uint64_t b, uint64_t c);
/* Draws plan->batch keys. */
void tables_draw_keys(const struct tables_plan *plan, uint32_t rank, uint32_t clock,
                      uint64_t *ret_keys);
/* Writes the gradients of these keys: plan->spec.dim values for each. Clock 0 makes the rows: all
 * its gradients have weight 1. */
void tables_draw_gradients(const struct tables_plan *plan, uint32_t rank, uint32_t clock,
                           const uint64_t *keys, size_t count, float *ret_gradients);
/* Returns the factor on this element in all gradients. */
static inline float tables_factor(uint32_t element) { return (float)(1 + element % 2); }

/* Makes all rows: the lowest rank pushes each key once. All ranks end the same clocks. */
int tables_make_rows(struct tables_worker *w);
/* Pulls all rows, and compares them with the sums of all gradients of clocks 0 to plan->clocks. One
 * rank calls this function, while no rank has an open clock with pushes. Writes
 * w->result->wrong. */
int tables_check_rows(struct tables_worker *w);

#endif
