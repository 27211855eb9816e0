/* Copies of the states of other aggregators' lanes (parameters and moments), in memory of this
 * process that those lanes write (svc/wire, W20). A thread of the holder drives the connections,
 * and sleeps between events; every function may be called from any other thread. The holder does
 * not know the coordinator: the caller sends the requests of holder_next_ask(), and passes the
 * answers to holder_ticket(). */
#ifndef GRADPOOL_REPLICA_HOLDER_H
#define GRADPOOL_REPLICA_HOLDER_H

#include "svc/wire/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct holder;

struct holder_options {
    const char *interface_name; /* lent; NULL: any */
    const char *provider;       /* lent; NULL: "tcp" */
    /* holder_next_ask() may have a request. Called from any thread, with the lock held: must not
     * call back. */
    void (*asks)(void *context);
    void *context;
};

/* Errors: -ENOMEM, -EMFILE. */
int holder_create(const struct holder_options *options, struct holder **ret_keeper);
/* Closes all connections and frees all copies. NULL is fine. */
void holder_destroy(struct holder *k);

/* A copy to be stored. */
struct holder_copy {
    uint32_t piece;
    uint32_t epoch; /* epoch of the piece's route */
    /* an owner of an earlier epoch was lost and may still write (W5); a later one released the
     * piece */
    uint32_t lost_epoch;
    uint64_t bytes; /* length of one state; memory for two is allocated */
    bool begins;    /* an older state that is stored here is void */
};

/* Stores copies of pieces that `lane` serves now: connects to the lane if necessary, and offers
 * memory for their states. -ENOMEM, -ENOSPC, -EMFILE: no room; copies before that one in the list
 * are stored. -EINVAL: another length than before. */
int holder_keep(struct holder *k, uint32_t job, const char *name, uint32_t lane,
                const struct holder_copy *copies, size_t count);
/* Drops the copies of these pieces, or (`others`) of all other pieces; count 0: the job has ended.
 * Unknown pieces are ignored. */
void holder_end(struct holder *k, uint32_t job, const uint32_t *pieces, size_t count, bool others);

/* Request for a ticket to connect to a lane. */
struct holder_ask {
    uint32_t job, lane;
    uint32_t failures; /* failed attempts to connect, in a row */
};
/* The next request that is due and was not returned yet; false: none. */
bool holder_next_ask(struct holder *k, struct holder_ask *ret_ask);
/* Time until there may be one, for poll(). */
int holder_timeout_ms(struct holder *k);
/* The coordinator was restarted or away: requests without an answer become due again. */
void holder_ask_again(struct holder *k);
/* Answer to a request. `code` 0: connects with the ticket, over shared memory if possible, else
 * over the network; -EAGAIN: requests again later; -ENOENT: drops the copies for that lane; else
 * waits until holder_keep() names a lane. */
void holder_ticket(struct holder *k, uint32_t job, uint32_t lane, int code, const char *shm,
                   const char *ofi, const struct record_connect *ticket);

/* Copies that are stored now. */
struct holder_use {
    uint64_t bytes; /* both states of each copy */
    uint32_t copies, connections;
};
void holder_measure(struct holder *k, struct holder_use *ret_use);

#endif
