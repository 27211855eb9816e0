/* Fetches the state that lanes store for a job, through the coordinator. Used by an operator's
 * command and by a worker. README: D3. */
#ifndef GRADPOOL_STATE_STATE_FETCH_H
#define GRADPOOL_STATE_STATE_FETCH_H

#include "svc/channel/channel.h"

struct state_fetch {
    /* connection to the coordinator as an operator; owned by the caller */
    struct channel *channel;
    envelope *reply;                           /* owns `what` */
    const Gradpool__Wire__SnapshotReply *what; /* list of the tensors in the snapshot */
};

struct state_wish {
    const char *job, *tenant; /* tenant "": any tenant */
    /* whether the request comes from a rank of the job between two of its iterations */
    bool is_between;
    char **tensors; /* names of the requested tensors; NULL: all tensors with an update rule */
    size_t tensors_count;
};

/* Receives `bytes` of a tensor's arrays from `offset` on. `tensor`: index in `what`. An error ends
 * the fetch. */
typedef int (*state_part_fn)(void *context, size_t tensor, uint64_t offset, const void *data,
                             size_t bytes, struct err *err);

/* Begins a snapshot. The rounds of the job wait until state_fetch_end(), or until the channel is
 * closed or no longer used. Returns 0, or an error with a text. After an error the caller has
 * nothing to free. Errors are refusals of the coordinator (-ENOENT, -EAGAIN, -ENODATA, -EOPNOTSUPP
 * and others), and those of channel_call(). */
int state_fetch_begin(struct state_fetch *f, const struct state_wish *wish, struct err *err);
/* Fetches the next parts, and calls `take` for each part. Returns the number of parts; 0: the state
 * is complete. Returns errors of the channel and of `take`. */
int64_t state_fetch_next(struct state_fetch *f, state_part_fn take, void *context, struct err *err);
/* Ends the snapshot, so that the job's rounds continue. Returns 0 or a negative errno. */
int state_fetch_end(struct state_fetch *f, struct err *err);
void state_fetch_free(struct state_fetch *f);

#endif
