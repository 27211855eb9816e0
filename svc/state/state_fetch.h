/* Reads the state that lanes store for a job, through its coordinator: for an operator's command
 * and a worker. README: D3. */
#ifndef GRADPOOL_STATE_STATE_FETCH_H
#define GRADPOOL_STATE_STATE_FETCH_H

#include "svc/channel/channel.h"

struct state_fetch {
    struct channel *channel;                   /* lent; greeted as an operator's */
    envelope *reply;                           /* owns `what` */
    const Gradpool__Wire__SnapshotReply *what; /* tensors of the snapshot */
};

struct state_wish {
    const char *job, *tenant; /* tenant "": any tenant */
    bool is_between; /* the request comes from a rank of the job, between two of its iterations */
    char **tensors;  /* names of the wanted tensors; none: all with an update rule */
    size_t tensors_count;
};

/* Receives `bytes` of a tensor's arrays, from `offset` on; `tensor` is its index in `what`. An
 * error ends the fetch. */
typedef int (*state_part_fn)(void *context, size_t tensor, uint64_t offset, const void *data,
                             size_t bytes, struct err *err);

/* Begins a snapshot: the job's rounds wait until state_fetch_end(), or until the channel ends or is
 * silent. Errors: the coordinator's refusal (-ENOENT, -EAGAIN, -ENODATA, -EOPNOTSUPP, ...) and
 * those of channel_call(), with text; the caller frees nothing then. */
int state_fetch_begin(struct state_fetch *f, const struct state_wish *wish, struct err *err);
/* Fetches the next parts, and calls `take` for each. Returns their number; 0: the state is
 * complete; an error of the channel or of `take`. */
int64_t state_fetch_next(struct state_fetch *f, state_part_fn take, void *context, struct err *err);
/* Ends the snapshot: the job's rounds continue. */
int state_fetch_end(struct state_fetch *f, struct err *err);
void state_fetch_free(struct state_fetch *f);

#endif
