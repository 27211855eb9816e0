/* The ring of a recording. Writer and reader each own one counter, which only grows. The rounds
 * between the two counters belong to the reader. README: W19. */
#include "svc/wire/trace_ring.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 64

struct trace_ring {
    uint64_t since_ns, until_ns;
    uint32_t mask;
    _Alignas(LINE_BYTES) _Atomic uint64_t put;
    _Atomic uint64_t dropped;
    _Alignas(LINE_BYTES) _Atomic uint64_t taken;
    _Alignas(LINE_BYTES) struct trace_round rounds[];
};

int trace_ring_create(uint32_t rounds, uint64_t since_ns, uint64_t until_ns,
                      struct trace_ring **ret_ring)
{
    struct trace_ring *ring;
    size_t bytes = sizeof *ring + (size_t)rounds * sizeof *ring->rounds;
    bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    if (rounds == 0 || (rounds & (rounds - 1)) != 0)
        return -EINVAL;
    ring = aligned_alloc(LINE_BYTES, bytes);
    if (!ring)
        return -ENOMEM;
    memset(ring, 0, bytes); /* allocates all pages before the data path needs them */
    ring->since_ns = since_ns;
    ring->until_ns = until_ns;
    ring->mask = rounds - 1;
    atomic_init(&ring->put, 0);
    atomic_init(&ring->dropped, 0);
    atomic_init(&ring->taken, 0);
    *ret_ring = ring;
    return 0;
}

void trace_ring_destroy(struct trace_ring *ring) { free(ring); }

bool trace_round_is_sound(const struct trace_round *round)
{
    for (int i = 1; i < TRACE_STEPS; i++) {
        if (round->at_ns[i] < round->at_ns[i - 1])
            return false;
    }
    return true;
}

void trace_ring_put(struct trace_ring *ring, const struct trace_round *round)
{
    bool is_within =
        round->at_ns[0] >= ring->since_ns && round->at_ns[TRACE_STEPS - 1] <= ring->until_ns;
    if (!is_within || !trace_round_is_sound(round))
        return;
    uint64_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
    if (put - atomic_load_explicit(&ring->taken, memory_order_acquire) > ring->mask) {
        atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
        return;
    }
    ring->rounds[put & ring->mask] = *round;
    atomic_store_explicit(&ring->put, put + 1, memory_order_release);
}

size_t trace_ring_waiting(const struct trace_ring *ring)
{
    return (size_t)(atomic_load_explicit(&ring->put, memory_order_acquire) -
                    atomic_load_explicit(&ring->taken, memory_order_relaxed));
}

size_t trace_ring_take(struct trace_ring *ring, struct trace_round *ret_rounds, size_t max)
{
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    size_t waiting = trace_ring_waiting(ring), count = waiting < max ? waiting : max;
    for (size_t i = 0; i < count; i++)
        ret_rounds[i] = ring->rounds[(taken + i) & ring->mask];
    atomic_store_explicit(&ring->taken, taken + count, memory_order_release);
    return count;
}

uint64_t trace_ring_dropped(const struct trace_ring *ring)
{
    return atomic_load_explicit(&ring->dropped, memory_order_relaxed);
}
