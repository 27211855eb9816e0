/* Philox4x32-10: 128 random bits as a function of a counter and a key, without a state. Any process
 * can compute any part of a sequence, in any order, with the same bits.
 *
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
 * Constants and known answers are those of Random123. Pure; any thread. */
#ifndef GRADPOOL_REDUCE_PHILOX_H
#define GRADPOOL_REDUCE_PHILOX_H

#include <stdint.h>

#define PHILOX_ROUNDS 10
#define PHILOX_MULTIPLIER0 UINT64_C(0xd2511f53)
#define PHILOX_MULTIPLIER1 UINT64_C(0xcd9e8d57)
#define PHILOX_STEP0 UINT32_C(0x9e3779b9) /* added to the low word of the key after each round */
#define PHILOX_STEP1 UINT32_C(0xbb67ae85) /* added to the high word of the key after each round */

/* Runs one round on the four words of a block. */
static inline void philox_round(uint32_t *word0, uint32_t *word1, uint32_t *word2, uint32_t *word3,
                                uint32_t key0, uint32_t key1)
{
    uint64_t product0 = PHILOX_MULTIPLIER0 * *word0, product1 = PHILOX_MULTIPLIER1 * *word2;
    *word0 = (uint32_t)(product1 >> 32) ^ *word1 ^ key0;
    *word1 = (uint32_t)product1;
    *word2 = (uint32_t)(product0 >> 32) ^ *word3 ^ key1;
    *word3 = (uint32_t)product0;
}

/* Replaces the counter in `words` by its random bits. */
static inline void philox(uint64_t key, uint32_t words[4])
{
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        philox_round(&words[0], &words[1], &words[2], &words[3], key0, key1);
        key0 += PHILOX_STEP0;
        key1 += PHILOX_STEP1;
    }
}

#endif
