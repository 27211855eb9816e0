/* The surroundings of fabrics of kind "mem": one process, one thread, a clock that only
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
    /* Like shared memory: fabric_map() returns pointers, reads and writes are done at once, a
     * message has no payload, and foreign memory cannot be lent. false: like libfabric. */
    bool is_mapped;
    /* most messages and operations in progress of one side of a connection; 0: 64 */
    uint32_t queue_depth;
};

/* Creates a network, whose clock begins at 0. -EINVAL: delay_min_ns > delay_max_ns. */
int mem_network_create(const struct mem_network_options *options, struct mem_network **ret_network);
/* Call this after all its fabrics have been closed. NULL is allowed. */
void mem_network_destroy(struct mem_network *n);

uint64_t mem_network_now_ns(const struct mem_network *n);
/* Moves the clock, but never back. Packets due by then are delivered when their receivers poll. */
void mem_network_advance(struct mem_network *n, uint64_t now_ns);
/* Returns the time of the next packet that is not due; UINT64_MAX: no packet is in flight. */
uint64_t mem_network_next_ns(const struct mem_network *n);

#endif
