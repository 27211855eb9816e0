/* Replica holder: stores copies of the states (parameters and moments) of other aggregators' lanes.
 * These lanes write to memory of this process (svc/wire, W20). A thread of the holder handles the
 * connections, and sleeps between events. Every function may be called from any other thread. The
 * holder has no connection to the coordinator. The caller sends the requests from holder_next_ask()
 * and passes the answers to holder_ticket(). */
#ifndef GRADPOOL_REPLICA_HOLDER_H
#define GRADPOOL_REPLICA_HOLDER_H

#include "svc/wire/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct holder;

struct holder_options {
    /* network interface for connections, borrowed; NULL: any interface */
    const char *interface_name;
    const char *provider; /* libfabric provider, borrowed; NULL: "tcp" */
    /* Called when holder_next_ask() may have a request, or holder_next_logged() a report: from any
     * thread, with the lock held. Must not call functions of the holder. */
    void (*asks)(void *context);
    void *context;
};

/* Creates a holder. Returns 0, -ENOMEM or -EMFILE. */
int holder_create(const struct holder_options *options, struct holder **ret_holder);
/* Closes all connections and frees all copies. NULL is allowed. */
void holder_destroy(struct holder *k);

/* A copy to be stored. */
struct holder_copy {
    uint32_t piece;
    uint32_t epoch; /* epoch of the piece's route */
    /* owners with an earlier epoch were lost and may still write (W5); owners with this or a later
     * epoch have released the piece */
    uint32_t lost_epoch;
    uint64_t bytes; /* length of one state; memory for two states is allocated */
    bool begins;    /* the replica is a new one: a state that is already stored here is invalid */
};

/* Stores copies of pieces that `lane` serves now: connects to the lane if necessary, and offers
 * memory for their states. Returns 0 or a negative errno. -ENOMEM, -ENOSPC, -EMFILE: no room for a
 * copy; the copies before it in the list are stored. -EINVAL: a copy has another length than
 * before. */
int holder_keep(struct holder *k, uint32_t job, const char *name, uint32_t lane,
                const struct holder_copy *copies, size_t count);
/* Drops the copies of these pieces; with `others`, drops the copies of all other pieces. `count` 0
 * without `others`: the job has ended, and all its copies and rings are dropped; no lane of this
 * process reads a ring of the job any more. Unknown pieces are ignored. */
void holder_end(struct holder *k, uint32_t job, const uint32_t *pieces, size_t count, bool others);

/* Request for a ticket with which the holder connects to a lane. */
struct holder_ask {
    uint32_t job, lane;
    uint32_t failures; /* number of consecutive failed connections */
};
/* Returns the next request that is due and was not returned yet. False: no request is due. */
bool holder_next_ask(struct holder *k, struct holder_ask *ret_ask);
/* Returns the time until a request may be due, as a timeout for poll(). */
int holder_timeout_ms(struct holder *k);
/* Makes all requests without an answer due again, because the coordinator was restarted or could
 * not be reached. */
void holder_ask_again(struct holder *k);
/* Passes the answer to a request. `code` 0: the holder connects with the ticket, over shared memory
 * if possible, otherwise over the network. -EAGAIN: the holder repeats the request later. -ENOENT:
 * the holder drops the copies for this lane. Other codes: the holder waits until holder_keep()
 * names a lane. */
void holder_ticket(struct holder *k, uint32_t job, uint32_t lane, int code, const char *shm,
                   const char *ofi, const struct record_connect *ticket);

/* Copies that are stored now. */
struct holder_use {
    uint64_t bytes; /* bytes of both states of all copies */
    uint32_t copies, connections;
};
void holder_measure(struct holder *k, struct holder_use *ret_use);

#endif
