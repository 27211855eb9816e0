/* Computes pseudo-random numbers. Must never read a clock, or any state except the caller's. */
#include "bench/sim/chance.h"

#include <math.h>

/* splitmix64, by Sebastiano Vigna, public domain. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t chance_hash(uint64_t a, uint64_t b)
{
    return mix(mix(a + UINT64_C(0x9e3779b97f4a7c15)) + b);
}

uint64_t chance_next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(*state);
}

double chance_unit(uint64_t *state)
{
    return (double)(chance_next(state) >> 11) / (double)(UINT64_C(1) << 53);
}

double chance_exponential(uint64_t *state) { return -log(1 - chance_unit(state)); }

/* Uses one of the two values of the Box-Muller transform. */
double chance_normal(uint64_t *state)
{
    double radius = sqrt(2 * chance_exponential(state));

    return radius * cos(2 * M_PI * chance_unit(state));
}
