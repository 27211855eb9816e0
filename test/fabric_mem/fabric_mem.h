/* The in-process fabric: implements fabric.h on a mem_network, with faults that a test requests.
 * README: N1 to N9. All functions require a fabric that was created here. */
#ifndef GRADPOOL_TEST_FABRIC_MEM_FABRIC_MEM_H
#define GRADPOOL_TEST_FABRIC_MEM_FABRIC_MEM_H

#include "svc/fabric/fabric.h"
#include "test/fabric_mem/network.h"

/* Opens a fabric. `options` may be NULL; only payload_bytes_max is used. The caller must close the
 * fabric before the network. */
int mem_fabric_open(struct mem_network *network, const struct fabric_options *options,
                    struct fabric **ret_fabric);

/* Simulates kill -9 of the fabric's process. A random number of its packets in flight still
 * arrives, the last write perhaps in part. Then each peer gets CLOSED with -ECONNRESET. The fabric
 * reports no more events, and its verbs return -ECONNRESET. fabric_close() is still required. */
void mem_fabric_kill(struct fabric *f);

/* Simulates SIGSTOP and SIGCONT. A stopped fabric does not poll, and does not answer reads or
 * writes of its memory. */
void mem_fabric_stop(struct fabric *f, bool is_stopped);

enum mem_fault {
    MEM_FAULT_AGAIN, /* the verb returns -EAGAIN; ROOM follows */
    MEM_FAULT_RESET, /* the connection ends: -ECONNRESET here, CLOSED at both ends */
    MEM_FAULT_KILL,  /* mem_fabric_kill() before the post */
};
/* Makes one post fail: the n-th post (send, read, write or notify) from now on, counted from 1; 0:
 * no post fails. */
void mem_fabric_fail_post(struct fabric *f, uint64_t n, enum mem_fault fault);

struct mem_counters {
    /* number of calls of verbs on a usable connection, also refused ones */
    uint64_t posts;
    uint64_t refused;                 /* number of posts that returned -EAGAIN */
    uint64_t messages, message_bytes; /* sent messages and their bytes, with payloads */
    uint64_t reads, read_bytes;
    uint64_t writes, written_bytes;
    uint64_t words; /* number of words written with bytes or by notify */
    /* number of writes whose local bytes changed before WRITTEN; an error of the code under test */
    uint64_t changed_early;
};
struct mem_counters mem_fabric_counters(const struct fabric *f);

#endif
