/* Owns the virtual clock and the random numbers of fabric_mem. Must never read real time: with the
 * same seed and calls, two runs are equal (README, N1). */
#include "test/fabric_mem/network.h"

#include "test/fabric_mem/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void *mem_zalloc(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) {
        fputs("fabric_mem: out of memory\n", stderr);
        abort();
    }
    return memory;
}

int mem_network_create(const struct mem_network_options *options, struct mem_network **ret_network)
{
    if (options->delay_min_ns > options->delay_max_ns)
        return -EINVAL;
    struct mem_network *n = mem_zalloc(sizeof *n);
    n->options = *options;
    if (n->options.queue_depth == 0)
        n->options.queue_depth = MEM_QUEUE_DEPTH_DEFAULT;
    n->random = options->seed;
    list_init(&n->fabrics);
    *ret_network = n;
    return 0;
}

void mem_network_destroy(struct mem_network *n)
{
    assert(n == NULL || list_is_empty(&n->fabrics));
    free(n);
}

/* splitmix64: short, and good enough for random delays. */
uint64_t mem_network_draw(struct mem_network *n, uint64_t most)
{
    uint64_t z = n->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return most == UINT64_MAX ? z : z % (most + 1);
}

uint64_t mem_network_now_ns(const struct mem_network *n) { return n->now_ns; }

void mem_network_advance(struct mem_network *n, uint64_t now_ns)
{
    assert(now_ns >= n->now_ns);
    n->now_ns = now_ns;
}

/* Returns the time of the first packet in an inbox whose time is in the future. Packets that wait
 * for a poll or a message buffer do not depend on the clock. */
static uint64_t inbox_next_ns(const struct mem_conn *c, uint64_t now_ns)
{
    list_for_each (node, &c->inbox) {
        const struct mem_packet *p = list_entry(node, struct mem_packet, node);
        if (p->due_ns > now_ns)
            return p->due_ns;
    }
    return UINT64_MAX;
}

uint64_t mem_network_next_ns(const struct mem_network *n)
{
    uint64_t next_ns = UINT64_MAX;
    list_for_each (at, &n->fabrics) {
        const struct mem_fabric *f = list_entry(at, struct mem_fabric, node);
        list_for_each (node, &f->conns) {
            const struct mem_conn *c = list_entry(node, struct mem_conn, node);
            uint64_t due_ns = inbox_next_ns(c, n->now_ns);
            if (due_ns < next_ns)
                next_ns = due_ns;
        }
    }
    return next_ns;
}
