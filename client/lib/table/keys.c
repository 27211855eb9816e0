/* Sorts the keys of a request. Mixed keys are uniform, so one pass by the top bits leaves few keys
 * in each bucket. Equal keys are always in one bucket, so a large bucket is split by its next bits
 * until it is small or all its keys are equal. */
#include "client/lib/table/keys.h"

#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define INSERTION_MAX 24 /* up to this many places, insertion is faster than a split */
#define SPLIT_BITS 8
#define FIRST_BITS_MAX 12
#define KEY_BITS 64

/* Sorts few places by insertion. The sort is stable: equal keys stay in order of position. */
static void sort_few(struct table_place *places, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct table_place place = places[i];
        uint32_t at = i;
        for (; at > 0 && places[at - 1].mixed > place.mixed; at--)
            places[at] = places[at - 1];
        places[at] = place;
    }
}

static uint32_t digit(uint64_t mixed, uint32_t shift, uint32_t bits)
{
    return (uint32_t)(mixed >> shift) & ((1u << bits) - 1);
}

/* Copies the places from `from` to `to`, in the order of their digit. ends[d]: end of bucket d in
 * `to`. */
static void keys_split(const struct table_place *from, struct table_place *to, uint32_t count,
                       uint32_t shift, uint32_t bits, uint32_t *ends)
{
    memset(ends, 0, sizeof *ends << bits);
    for (uint32_t i = 0; i < count; i++)
        ends[digit(from[i].mixed, shift, bits)]++;
    for (uint32_t d = 0, start = 0; d < 1u << bits; d++) {
        uint32_t length = ends[d];
        ends[d] = start;
        start += length;
    }
    for (uint32_t i = 0; i < count; i++)
        to[ends[digit(from[i].mixed, shift, bits)]++] = from[i];
}

static bool is_one_key(const struct table_place *places, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (places[i].mixed != places[0].mixed)
            return false;
    return true;
}

/* Sorts places whose keys may differ in the lowest `left` bits only. The recursion is at most eight
 * calls deep. */
static void sort_bucket(struct table_place *places, struct table_place *scratch, uint32_t count,
                        uint32_t left)
{
    uint32_t ends[1 << SPLIT_BITS];
    if (count <= INSERTION_MAX) {
        sort_few(places, count);
        return;
    }
    if (left == 0 || is_one_key(places, count))
        return;
    uint32_t bits = left < SPLIT_BITS ? left : SPLIT_BITS;
    keys_split(places, scratch, count, left - bits, bits, ends);
    memcpy(places, scratch, count * sizeof *places);
    for (uint32_t d = 0, start = 0; d < 1u << bits; start = ends[d++])
        sort_bucket(places + start, scratch + start, ends[d] - start, left - bits);
}

/* Sorts the places in the scratch memory, and writes them to `places`. */
static void sort_places(struct table_keys *keys)
{
    uint32_t ends[1 << FIRST_BITS_MAX], bits = 1;
    while (bits < FIRST_BITS_MAX && keys->positions >> (bits + 3) > 0)
        bits++;
    keys_split(keys->scratch, keys->places, keys->positions, KEY_BITS - bits, bits, ends);
    for (uint32_t d = 0, start = 0; d < 1u << bits; start = ends[d++])
        sort_bucket(keys->places + start, keys->scratch + start, ends[d] - start, KEY_BITS - bits);
}

static void find_runs(struct table_keys *keys)
{
    keys->count = 0;
    for (uint32_t i = 0; i < keys->positions; i++) {
        if (i == 0 || keys->places[i].mixed != keys->places[i - 1].mixed) {
            keys->mixed[keys->count] = keys->places[i].mixed;
            keys->starts[keys->count++] = i;
        }
        keys->places[i].run = keys->count - 1;
    }
    keys->starts[keys->count] = keys->positions;
}

static int keys_make_room(struct table_keys *keys, size_t count)
{
    if (count <= keys->room && keys->starts)
        return 0;
    table_keys_fini(keys);
    keys->mixed = calloc(count + 1, sizeof *keys->mixed);
    keys->starts = calloc(count + 1, sizeof *keys->starts);
    keys->places = calloc(count + 1, sizeof *keys->places);
    keys->scratch = calloc(count + 1, sizeof *keys->scratch);
    if (!keys->mixed || !keys->starts || !keys->places || !keys->scratch) {
        table_keys_fini(keys);
        return -ENOMEM;
    }
    keys->room = (uint32_t)count;
    return 0;
}

int table_keys_set(struct table_keys *keys, const uint64_t *caller, size_t count, uint64_t bound,
                   uint64_t salt, size_t *ret_wrong)
{
    keys->count = keys->positions = 0;
    if (count > TABLE_KEYS_MAX)
        return -E2BIG;
    for (size_t i = 0; bound != 0 && i < count; i++) {
        if (caller[i] >= bound) {
            *ret_wrong = i;
            return -EINVAL;
        }
    }
    int error = keys_make_room(keys, count);
    if (error < 0)
        return error;
    for (uint32_t i = 0; i < count; i++)
        keys->scratch[i] = (struct table_place){.mixed = mixed_key(caller[i], salt), .position = i};
    keys->positions = (uint32_t)count;
    sort_places(keys);
    find_runs(keys);
    return 0;
}

void table_keys_fini(struct table_keys *keys)
{
    free(keys->mixed);
    free(keys->starts);
    free(keys->places);
    free(keys->scratch);
    *keys = (struct table_keys){0};
}

uint32_t table_keys_spans(const struct table_keys *keys, uint32_t shard_bits,
                          struct table_span *ret_spans)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < keys->count; i++) {
        uint32_t shard = mixed_key_shard(keys->mixed[i], shard_bits);
        if (count == 0 || ret_spans[count - 1].shard != shard)
            ret_spans[count++] = (struct table_span){.shard = shard, .first = i};
        ret_spans[count - 1].count++;
    }
    return count;
}
