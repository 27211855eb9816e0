/* Checksums of memory in one pass, at the speed of memory. */
#include "client/lib/state/checksum.h"

#include <stdbool.h>
#include <string.h>

/* 32-bit words are summed modulo 2^64. A changed word changes the first sum by less than 2^32. Two
 * swapped words change the second sum by less than 2^64, in memory of up to 256 GiB. So neither
 * difference is a multiple of 2^64, and both kinds of changes change the checksum. */
typedef uint64_t lanes __attribute__((vector_size(32)));
#define LANES (sizeof(lanes) / sizeof(uint64_t))
#define VECTORS 2 /* number of vectors at a time */
#define STRIDE (VECTORS * sizeof(lanes))
#define LOW_HALF UINT64_C(0xffffffff)
#define MULTIPLIER UINT64_C(0x9e3779b97f4a7c15)

struct sums {
    lanes once[2 * VECTORS], by_place[2 * VECTORS];
};

static inline __attribute__((always_inline)) void add(struct sums *s, const char *data,
                                                      size_t bytes)
{
    struct sums sums = *s; /* a copy in registers */
    for (const char *at = data; at < data + bytes; at += STRIDE) {
        for (int i = 0; i < VECTORS; i++) {
            lanes read;
            memcpy(&read, at + (size_t)i * sizeof read, sizeof read);
            sums.once[2 * i] += read & LOW_HALF;
            sums.once[2 * i + 1] += read >> 32;
            sums.by_place[2 * i] += sums.once[2 * i];
            sums.by_place[2 * i + 1] += sums.once[2 * i + 1];
        }
    }
    *s = sums;
}

static void add_plain(struct sums *s, const char *data, size_t bytes) { add(s, data, bytes); }

#ifdef __x86_64__
__attribute__((target("avx2"))) static void add_avx2(struct sums *s, const char *data, size_t bytes)
{
    add(s, data, bytes);
}

static bool has_avx2(void) { return __builtin_cpu_supports("avx2"); }
#else
#define add_avx2 add_plain
static bool has_avx2(void) { return false; }
#endif

static uint64_t mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * MULTIPLIER;
    return sum << 29 | sum >> 35;
}

uint64_t checksum(uint64_t sum, const void *data, size_t bytes)
{
    void (*add_all)(struct sums *, const char *, size_t) = has_avx2() ? add_avx2 : add_plain;
    struct sums s = {0};
    size_t whole = bytes / STRIDE * STRIDE;
    char rest[STRIDE] = {0};
    if (whole > 0)
        add_all(&s, data, whole);
    if (bytes > whole)
        memcpy(rest, (const char *)data + whole, bytes - whole);
    add_all(&s, rest, STRIDE);
    sum = mix(sum, bytes);
    for (size_t i = 0; i < 2 * VECTORS; i++)
        for (size_t k = 0; k < LANES; k++)
            sum = mix(mix(sum, s.once[i][k]), s.by_place[i][k]);
    return sum;
}
