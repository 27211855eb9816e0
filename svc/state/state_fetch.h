/* Reading what lanes keep of a job, through its coordinator: what an operator's command and a
 * worker both do. README: D3. */
#ifndef GRADPOOL_STATE_STATE_FETCH_H
#define GRADPOOL_STATE_STATE_FETCH_H

#include "svc/channel/channel.h"

struct state_fetch {
    struct channel *channel; /* the caller's, greeted as an operator's */
    envelope *reply;         /* owns `what` */
    const Gradpool__Wire__SnapshotReply *what;
};

struct state_wish {
    const char *job, *tenant; /* tenant "": any */
    bool is_between;          /* a rank of the job asks, between two of its iterations */
    char **tensors;           /* their names; none: all that have a rule */
    size_t tensors_count;
};

/* Takes `bytes` of a tensor's arrays (its index in `what`), from `offset` on. */
typedef int (*state_part_fn)(void *context, size_t tensor, uint64_t offset, const void *data,
                             size_t bytes, struct err *err);

/* From the reply on the job's rounds wait, until state_fetch_end(), or until the channel ends or is
 * silent. Errors: the coordinator's refusal (-ENOENT, -EAGAIN, -ENODATA, -EOPNOTSUPP, ...) and
 * those of channel_call(), with text; there is nothing to free then. */
int state_fetch_begin(struct state_fetch *f, const struct state_wish *wish, struct err *err);
/* Returns how many parts came: 0, all have. Also what `take` returns. */
int64_t state_fetch_next(struct state_fetch *f, state_part_fn take, void *context, struct err *err);
int state_fetch_end(struct state_fetch *f, struct err *err);
void state_fetch_free(struct state_fetch *f);

#endif
