/* Copies of what other aggregators' lanes keep for jobs: parameters and moments, in memory of this
 * process that those lanes write (svc/wire, W20). A thread of its own carries the connections and
 * sleeps while nothing comes; all functions may be called from any other. Knows no coordinator:
 * what it wants of it is asked through keeper_next_ask(), and comes as keeper_ticket(). */
#ifndef GRADPOOL_KEEPER_KEEPER_H
#define GRADPOOL_KEEPER_KEEPER_H

#include "svc/wire/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct keeper;

struct keeper_options {
    const char *interface_name; /* lent; NULL: any */
    const char *provider;       /* lent; NULL: "tcp" */
    /* Something is to be asked; from whatever thread. Must not call back. */
    void (*asks)(void *context);
    void *context;
};

/* -ENOMEM, -EMFILE. */
int keeper_create(const struct keeper_options *options, struct keeper **ret_keeper);
/* Closes all connections and forgets all copies. NULL is fine. */
void keeper_destroy(struct keeper *k);

struct keeper_copy {
    uint32_t piece;
    uint32_t epoch, lost_epoch; /* of its route: whether the lane before has let go of it (W5) */
    uint64_t bytes;             /* of one state; two are kept */
    bool begins;                /* what was kept of it before is nothing */
};

/* The lane has these pieces of the job, now: connects to it, if need be, and offers room for their
 * states. -ENOMEM, -ENOSPC, -EMFILE: no room; those before it in the list are kept. */
int keeper_keep(struct keeper *k, uint32_t job, const char *name, uint32_t lane,
                const struct keeper_copy *copies, size_t count);
/* These are kept no longer, or (`others`) all but these; count 0: the job has ended. Unknown ones
 * are no error. */
void keeper_end(struct keeper *k, uint32_t job, const uint32_t *pieces, size_t count, bool others);

/* A ticket is wanted to connect to that lane. */
struct keeper_ask {
    uint32_t job, lane;
    uint32_t failures; /* to connect, in a row */
};
/* The next that is due and was not asked yet; false: none. */
bool keeper_next_ask(struct keeper *k, struct keeper_ask *ret_ask);
/* How long until there may be one, as for poll(). */
int keeper_timeout_ms(struct keeper *k);
/* Whoever was asked has forgotten it: all that is not answered is asked again. */
void keeper_ask_again(struct keeper *k);
/* The answer. code 0: connects, by shared memory if it can, else over the network; -EAGAIN: asks
 * again; -ENOENT: forgets what is kept for that lane; else waits until keeper_keep() names one. */
void keeper_ticket(struct keeper *k, uint32_t job, uint32_t lane, int code, const char *shm,
                   const char *ofi, const struct record_connect *ticket);

/* What is kept now. */
struct keeper_use {
    uint64_t bytes; /* of both states of each copy */
    uint32_t copies, connections;
};
void keeper_measure(struct keeper *k, struct keeper_use *ret_use);

#endif
