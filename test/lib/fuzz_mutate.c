/* Mutates byte strings with random numbers from a seed. Must never write beyond the end of the
 * given memory. */
#include "test/lib/fuzz.h"

#include <string.h>

uint64_t fuzz_random_next(struct fuzz_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t fuzz_random_below(struct fuzz_random *random, uint64_t below)
{
    return fuzz_random_next(random) % below;
}

struct buffer {
    uint8_t *data;
    size_t bytes, bytes_max;
    const uint8_t *other;
    size_t other_bytes;
};

typedef void (*mutation_fn)(struct fuzz_random *random, struct buffer *b);

static size_t any_offset(struct fuzz_random *random, size_t bytes)
{
    return bytes ? (size_t)fuzz_random_below(random, bytes) : 0;
}

static void flip_bit(struct fuzz_random *random, struct buffer *b)
{
    if (b->bytes)
        b->data[any_offset(random, b->bytes)] ^= (uint8_t)(1u << fuzz_random_below(random, 8));
}

static void set_byte(struct fuzz_random *random, struct buffer *b)
{
    if (b->bytes)
        b->data[any_offset(random, b->bytes)] = (uint8_t)fuzz_random_next(random);
}

/* Writes an integer at the limit of a type, because errors with lengths, counts and offsets occur
 * there. */
static void set_odd_integer(struct fuzz_random *random, struct buffer *b)
{
    static const uint64_t odd[] = {
        0,          1,
        0x7f,       0x80,
        0xff,       0x7fff,
        0x8000,     0xffff,
        0x7fffffff, 0x80000000,
        0xffffffff, 0x100000000,
        INT64_MAX,  (uint64_t)INT64_MAX + 1,
        UINT64_MAX, UINT64_MAX - 1,
    };
    uint64_t value = odd[fuzz_random_below(random, sizeof odd / sizeof odd[0])];
    size_t width = (size_t)1 << fuzz_random_below(random, 4);
    if (b->bytes >= width)
        memcpy(b->data + fuzz_random_below(random, b->bytes - width + 1), &value, width);
}

static void cut_tail(struct fuzz_random *random, struct buffer *b)
{
    b->bytes = any_offset(random, b->bytes);
}

static void delete_range(struct fuzz_random *random, struct buffer *b)
{
    size_t from = any_offset(random, b->bytes);
    size_t gone = any_offset(random, b->bytes - from);
    memmove(b->data + from, b->data + from + gone, b->bytes - from - gone);
    b->bytes -= gone;
}

static void insert(struct fuzz_random *random, struct buffer *b, const uint8_t *what, size_t bytes)
{
    if (bytes > b->bytes_max - b->bytes)
        bytes = b->bytes_max - b->bytes;
    size_t at = (size_t)fuzz_random_below(random, b->bytes + 1);
    memmove(b->data + at + bytes, b->data + at, b->bytes - at);
    memcpy(b->data + at, what, bytes);
    b->bytes += bytes;
}

static void insert_noise(struct fuzz_random *random, struct buffer *b)
{
    uint8_t noise[16];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)fuzz_random_next(random);
    insert(random, b, noise, 1 + any_offset(random, sizeof noise));
}

static void insert_from_other(struct fuzz_random *random, struct buffer *b)
{
    size_t from = any_offset(random, b->other_bytes);
    size_t most = b->other_bytes - from < 256 ? b->other_bytes - from : 256;
    insert(random, b, b->other + from, (size_t)fuzz_random_below(random, most + 1));
}

static void overwrite_from_other(struct fuzz_random *random, struct buffer *b)
{
    size_t from = any_offset(random, b->other_bytes), at = any_offset(random, b->bytes);
    size_t most = b->other_bytes - from;
    if (most > b->bytes - at)
        most = b->bytes - at;
    memcpy(b->data + at, b->other + from, (size_t)fuzz_random_below(random, most + 1));
}

static const mutation_fn mutations[] = {
    flip_bit,     set_byte,     set_odd_integer,   cut_tail,
    delete_range, insert_noise, insert_from_other, overwrite_from_other,
};

size_t fuzz_mutate(struct fuzz_random *random, uint8_t *data, size_t bytes, size_t bytes_max,
                   const uint8_t *other, size_t other_bytes)
{
    struct buffer b = {data, bytes, bytes_max, other, other_bytes};
    for (uint64_t left = 1 + fuzz_random_below(random, 4); left > 0; left--)
        mutations[fuzz_random_below(random, sizeof mutations / sizeof mutations[0])](random, &b);
    return b.bytes;
}
