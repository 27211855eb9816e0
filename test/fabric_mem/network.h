/* The world of fabrics of kind "mem": one process, one thread, a clock that only
 * mem_network_advance() moves, and random numbers from a seed. For tests and simulation. */
#ifndef GRADPOOL_TEST_FABRIC_MEM_NETWORK_H
#define GRADPOOL_TEST_FABRIC_MEM_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

struct mem_network;

struct mem_network_options {
    uint64_t seed;
    /* Every packet takes a random time between these two; packets of one direction of a connection
     * keep their order. Both 0: a packet arrives at the receiver's next poll. */
    uint64_t delay_min_ns, delay_max_ns;
    /* Like shared memory: fabric_map() gives pointers, reads and writes are done at once, a message
     * takes no payload, foreign memory cannot be lent. Else like libfabric. */
    bool is_mapped;
    /* Messages and operations of one side of a connection that may be under way; 0: 64. */
    uint32_t queue_depth;
};

/* -EINVAL: delay_min_ns > delay_max_ns. The clock begins at 0. */
int mem_network_create(const struct mem_network_options *options, struct mem_network **ret_network);
/* After all its fabrics have been closed. NULL is fine. */
void mem_network_destroy(struct mem_network *n);

uint64_t mem_network_now_ns(const struct mem_network *n);
/* Moves the clock, never back. Packets due by then are delivered when their receivers poll. */
void mem_network_advance(struct mem_network *n, uint64_t now_ns);
/* Due time of the next packet that is not due; UINT64_MAX: no packet is under way. */
uint64_t mem_network_next_ns(const struct mem_network *n);

#endif
