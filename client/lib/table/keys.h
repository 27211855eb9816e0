/* The keys of one request to a table, in the form that lanes read: mixed, ascending, each key once.
 * One sort gives the shard (top bits), the order of the merge on the lane, and the order of rows in
 * the lane's memory. One thread at a time may use a struct table_keys. */
#ifndef GRADPOOL_CLIENT_TABLE_KEYS_H
#define GRADPOOL_CLIENT_TABLE_KEYS_H

#include <stddef.h>
#include <stdint.h>

/* Maximum number of keys in one request. Such a request needs 16 MiB of places and 16 MiB of
 * scratch memory. table_batch_set() cuts longer batches. */
#define TABLE_KEYS_MAX (UINT32_C(1) << 20)

/* A key and its position among the caller's keys. */
struct table_place {
    uint64_t mixed;
    uint32_t position, run; /* run: index among the distinct keys */
};

/* The sorted keys: places[starts[i]] to places[starts[i + 1] - 1] are the places of mixed[i], by
 * ascending position. */
struct table_keys {
    uint32_t count;             /* number of distinct keys */
    uint32_t positions;         /* number of keys of the caller */
    uint64_t *mixed;            /* `count` distinct mixed keys, ascending */
    uint32_t *starts;           /* `count` + 1 elements */
    struct table_place *places; /* `positions` elements */
    struct table_place *scratch;
    uint32_t room; /* number of positions for which memory is allocated */
};

/* The keys of one shard: `count` keys from mixed[first] on. */
struct table_span {
    uint32_t shard, first, count;
};

/* Sorts `count` keys. `bound`: every key must be smaller; 0: no limit. A zeroed `keys` is empty;
 * the memory of earlier calls is used again. -EINVAL: the key at position `ret_wrong` is not below
 * the bound (without a bound, `ret_wrong` may be NULL); -E2BIG: more than TABLE_KEYS_MAX keys;
 * -ENOMEM. After an error `keys` is empty. */
int table_keys_set(struct table_keys *keys, const uint64_t *caller, size_t count, uint64_t bound,
                   uint64_t salt, size_t *ret_wrong);
void table_keys_fini(struct table_keys *keys);

/* Writes the shards that have keys, ascending, of a table of 2^shard_bits shards. Returns their
 * number, at most the number of distinct keys and of shards. */
uint32_t table_keys_spans(const struct table_keys *keys, uint32_t shard_bits,
                          struct table_span *ret_spans);

#endif
