/* A mixed key is the result of a bijection of a table's key. The bijection depends on the table's
 * random salt. Worker and lane compute the same mixed key. The top bits of a mixed key name the
 * shard. In requests, on the lane and in moves, rows are in the order of their mixed keys.
 *
 * Any 64-bit key is valid. The salt prevents that all keys of a data set have the same top bits, by
 * chance or by intent. The bijection is no cipher, and a worker may send any mixed keys. Therefore
 * the index of a shard limits the cost of keys that collide (A84). */
#ifndef GRADPOOL_WIRE_MIXED_KEY_H
#define GRADPOOL_WIRE_MIXED_KEY_H

#include <stdint.h>

#define MIXED_KEY_SHARD_BITS_MAX 12 /* 4096 shards */
#define MIXED_KEY_FACTOR UINT64_C(0xd6e8feb86659fd93)
/* inverse of MIXED_KEY_FACTOR modulo 2^64 */
#define MIXED_KEY_FACTOR_UNDO UINT64_C(0xcfee444d8b59a89b)

static inline uint64_t mixed_key_half(uint64_t x)
{
    x = (x ^ x >> 32) * MIXED_KEY_FACTOR;
    x = (x ^ x >> 32) * MIXED_KEY_FACTOR;
    return x ^ x >> 32;
}

static inline uint64_t mixed_key_undo_half(uint64_t x)
{
    x = (x ^ x >> 32) * MIXED_KEY_FACTOR_UNDO;
    x = (x ^ x >> 32) * MIXED_KEY_FACTOR_UNDO;
    return x ^ x >> 32;
}

/* The salt is used twice. Otherwise two keys with a certain difference would have mixed keys with
 * this difference for every salt. */
static inline uint64_t mixed_key(uint64_t key, uint64_t salt)
{
    return mixed_key_half(mixed_key_half(key ^ salt) + salt);
}

/* Returns the key whose mixed key is `mixed`. */
static inline uint64_t mixed_key_undo(uint64_t mixed, uint64_t salt)
{
    return mixed_key_undo_half(mixed_key_undo_half(mixed) - salt) ^ salt;
}

/* Returns the number of the shard of a mixed key, in a table of 2^shard_bits shards. */
static inline uint32_t mixed_key_shard(uint64_t mixed, uint32_t shard_bits)
{
    return (uint32_t)(mixed >> 1 >> (63 - shard_bits));
}

/* Returns the smallest mixed key of a shard. */
static inline uint64_t mixed_key_first(uint32_t shard, uint32_t shard_bits)
{
    return (uint64_t)shard << 1 << (63 - shard_bits);
}

/* Returns the largest mixed key of a shard. */
static inline uint64_t mixed_key_last(uint32_t shard, uint32_t shard_bits)
{
    return mixed_key_first(shard, shard_bits) | UINT64_MAX >> shard_bits;
}

#endif
