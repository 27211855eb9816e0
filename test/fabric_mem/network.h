/* The environment of fabrics of kind "mem": one process, one thread, a clock that only
 * mem_network_advance() moves, and random numbers from a seed. */
#ifndef GRADPOOL_TEST_FABRIC_MEM_NETWORK_H
#define GRADPOOL_TEST_FABRIC_MEM_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

struct mem_network;

struct mem_network_options {
    uint64_t seed;
    /* Every packet has a random delay between these two values; packets of one direction of a
     * connection keep their order. Both 0: a packet arrives at the receiver's next poll. */
    uint64_t delay_min_ns, delay_max_ns;
    /* True for a network like shared memory: fabric_map() returns pointers, reads and writes are
     * done at once, a message has no payload, and only own memory can be lent. False for a network
     * like libfabric. */
    bool is_mapped;
    /* maximum number of messages and operations in progress of one end; 0: 64 */
    uint32_t queue_depth;
};

/* Creates a network whose clock is at 0. -EINVAL: delay_min_ns > delay_max_ns. */
int mem_network_create(const struct mem_network_options *options, struct mem_network **ret_network);
/* Frees the network; the caller has closed all fabrics of the network before. `n` may be NULL. */
void mem_network_destroy(struct mem_network *n);

uint64_t mem_network_now_ns(const struct mem_network *n);
/* Moves the clock forwards. Packets with an earlier time arrive when their receivers poll. */
void mem_network_advance(struct mem_network *n, uint64_t now_ns);
/* Returns the earliest future time of a packet; UINT64_MAX: none is in flight. */
uint64_t mem_network_next_ns(const struct mem_network *n);

#endif
