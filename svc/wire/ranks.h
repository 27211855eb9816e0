/* A set of ranks: rank r is bit r % 64 of word r / 64. */
#ifndef GRADPOOL_WIRE_RANKS_H
#define GRADPOOL_WIRE_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define RANKS_WORDS 12 /* 768 ranks */

static inline bool ranks_have(const uint64_t *ranks, uint32_t rank)
{
    return ranks[rank / 64] >> (rank % 64) & 1;
}
static inline void ranks_add(uint64_t *ranks, uint32_t rank)
{
    ranks[rank / 64] |= UINT64_C(1) << (rank % 64);
}
static inline bool ranks_are_none(const uint64_t *ranks)
{
    static const uint64_t none[RANKS_WORDS];
    return memcmp(ranks, none, sizeof none) == 0;
}
static inline uint32_t ranks_count(const uint64_t *ranks)
{
    uint32_t count = 0;
    for (int i = 0; i < RANKS_WORDS; i++)
        count += (uint32_t)__builtin_popcountll(ranks[i]);
    return count;
}
/* Returns the number of ranks in the set that are less than `rank`. `rank` is below RANKS_WORDS *
 * 64. */
static inline uint32_t ranks_below(const uint64_t *ranks, uint32_t rank)
{
    uint32_t word = rank / 64, count = 0;
    for (uint32_t i = 0; i < word; i++)
        count += (uint32_t)__builtin_popcountll(ranks[i]);
    return count + (uint32_t)__builtin_popcountll(ranks[word] & ((UINT64_C(1) << rank % 64) - 1));
}

#endif
