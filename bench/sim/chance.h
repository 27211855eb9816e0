/* Pseudo-random numbers from a seed, equal on every machine. */
#ifndef GRADPOOL_BENCH_SIM_CHANCE_H
#define GRADPOOL_BENCH_SIM_CHANCE_H

#include <stdint.h>

/* Returns a pseudo-random number that depends on both arguments. */
uint64_t chance_hash(uint64_t a, uint64_t b);

/* Each call changes the state. */
uint64_t chance_next(uint64_t *state);      /* 64 bits */
double chance_unit(uint64_t *state);        /* 0 <= x < 1 */
double chance_normal(uint64_t *state);      /* mean 0, deviation 1 */
double chance_exponential(uint64_t *state); /* mean 1 */

#endif
