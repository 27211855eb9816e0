/* Checksum of the headers and arrays in files of snapshots and tables. */
#ifndef GRADPOOL_STATE_STATE_SUM_H
#define GRADPOOL_STATE_STATE_SUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define STATE_SUM_ROTATION 29
#define STATE_SUM_MULTIPLIER UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t state_sum_add(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * STATE_SUM_MULTIPLIER;
    return sum << STATE_SUM_ROTATION | sum >> (64 - STATE_SUM_ROTATION);
}

/* Returns a checksum of four interleaved sums, because in a single sum each multiplication would
 * wait for the previous one. Each step is invertible, so a changed word always changes the
 * checksum. */
static inline uint64_t state_sum(const void *data, size_t bytes)
{
    uint64_t sums[4] = {1, 2, 3, 4}, words[4], sum = bytes;
    const char *at = data, *end = at + bytes / sizeof words * sizeof words;
    for (; at < end; at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (int i = 0; i < 4; i++)
            sums[i] = state_sum_add(sums[i], words[i]);
    }
    memset(words, 0, sizeof words);
    memcpy(words, at, bytes % sizeof words);
    for (int i = 0; i < 4; i++)
        sum = state_sum_add(sum, state_sum_add(sums[i], words[i]));
    return sum;
}

#endif
