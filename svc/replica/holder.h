/* Copies of what other aggregators' lanes keep for jobs: parameters and moments, in memory of this
 * process that those lanes write (svc/wire, W20). A thread of its own carries the connections and
 * sleeps while nothing comes; all functions may be called from any other. Knows no coordinator:
 * what it wants of it is asked through holder_next_ask(), and comes as holder_ticket(). */
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
    /* Something is to be asked; from whatever thread. Must not call back. */
    void (*asks)(void *context);
    void *context;
};

/* -ENOMEM, -EMFILE. */
int holder_create(const struct holder_options *options, struct holder **ret_keeper);
/* Closes all connections and forgets all copies. NULL is fine. */
void holder_destroy(struct holder *k);

struct holder_copy {
    uint32_t piece;
    uint32_t epoch, lost_epoch; /* of its route: whether the lane before has let go of it (W5) */
    uint64_t bytes;             /* of one state; two are kept */
    bool begins;                /* what was kept of it before is nothing */
};

/* The lane has these pieces of the job, now: connects to it, if need be, and offers room for their
 * states. -ENOMEM, -ENOSPC, -EMFILE: no room; those before it in the list are kept. */
int holder_keep(struct holder *k, uint32_t job, const char *name, uint32_t lane,
                const struct holder_copy *copies, size_t count);
/* These are kept no longer, or (`others`) all but these; count 0: the job has ended. Unknown ones
 * are no error. */
void holder_end(struct holder *k, uint32_t job, const uint32_t *pieces, size_t count, bool others);

/* A ticket is wanted to connect to that lane. */
struct holder_ask {
    uint32_t job, lane;
    uint32_t failures; /* to connect, in a row */
};
/* The next that is due and was not asked yet; false: none. */
bool holder_next_ask(struct holder *k, struct holder_ask *ret_ask);
/* How long until there may be one, as for poll(). */
int holder_timeout_ms(struct holder *k);
/* Whoever was asked has forgotten it: all that is not answered is asked again. */
void holder_ask_again(struct holder *k);
/* The answer. code 0: connects, by shared memory if it can, else over the network; -EAGAIN: asks
 * again; -ENOENT: forgets what is kept for that lane; else waits until holder_keep() names one. */
void holder_ticket(struct holder *k, uint32_t job, uint32_t lane, int code, const char *shm,
                   const char *ofi, const struct record_connect *ticket);

/* What is kept now. */
struct holder_use {
    uint64_t bytes; /* of both states of each copy */
    uint32_t copies, connections;
};
void holder_measure(struct holder *k, struct holder_use *ret_use);

#endif
