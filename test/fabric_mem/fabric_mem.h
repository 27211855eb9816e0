/* The in-process fabric: the contract of fabric.h on a mem_network, and the accidents that a test
 * wants to happen. README: N1 to N9. All calls that name a fabric want one made here. */
#ifndef GRADPOOL_TEST_FABRIC_MEM_FABRIC_MEM_H
#define GRADPOOL_TEST_FABRIC_MEM_FABRIC_MEM_H

#include "svc/fabric/fabric.h"
#include "test/fabric_mem/network.h"

/* `options` may be NULL; of it only payload_bytes_max counts. Close it before the network. */
int mem_fabric_open(struct mem_network *network, const struct fabric_options *options,
                    struct fabric **ret_fabric);

/* As kill -9 of its process: of what is under way from it a part that chance decides still arrives
 * (a write perhaps in part), then each peer gets CLOSED with -ECONNRESET. It gives no more events;
 * its verbs say -ECONNRESET; fabric_close() is still due. */
void mem_fabric_kill(struct fabric *f);

/* As SIGSTOP and SIGCONT: stopped, it polls nothing and serves no read or write of its memory. */
void mem_fabric_stop(struct fabric *f, bool is_stopped);

enum mem_fault {
    MEM_FAULT_AGAIN, /* the verb says -EAGAIN; ROOM follows */
    MEM_FAULT_RESET, /* the connection dies: -ECONNRESET here, CLOSED at both ends */
    MEM_FAULT_KILL,  /* as mem_fabric_kill(), before the post */
};
/* Fails the n-th post (send, read, write, notify) from now, once; `n` from 1, 0: none. */
void mem_fabric_fail_post(struct fabric *f, uint64_t n, enum mem_fault fault);

struct mem_counters {
    uint64_t posts;   /* verbs that were tried on a usable connection, refused ones included */
    uint64_t refused; /* of them: -EAGAIN */
    uint64_t messages, message_bytes; /* sent, with their payloads */
    uint64_t reads, read_bytes;
    uint64_t writes, written_bytes;
    uint64_t words;         /* written with bytes or by notify */
    uint64_t changed_early; /* writes whose local bytes changed before WRITTEN: our mistake */
};
struct mem_counters mem_fabric_counters(const struct fabric *f);

#endif
