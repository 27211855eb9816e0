/* What goes along when a piece moves (A27 to A29). Everything here belongs to the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_MOVED_STATE_H
#define GRADPOOL_LANE_MOVE_MOVED_STATE_H

#include "svc/lane/lane.h"

struct lane_standing {
    uint64_t round;       /* committed last; 0: none, or not known here */
    uint64_t state_bytes; /* that a new owner needs beside that */
    uint64_t steps; /* of parameters: updates since they were set, and one; 0: none, or no good */
    bool is_recovering; /* ... or not known yet: workers, or a copy, have still to tell */
};
/* Of a frozen piece. -ENOENT: not here; -EBUSY: not frozen; -ECONNABORTED: the job has failed. */
int lane_standing(struct lane *lane, uint32_t job, uint32_t piece, struct lane_standing *ret);
/* Copies what there is of its state from `offset` on, up to `room` bytes; returns how many. Errors
 * as above; -EINVAL: an offset beyond its end. */
int64_t lane_state_read(struct lane *lane, uint32_t job, uint32_t piece, uint64_t offset,
                        void *ret_data, size_t room);

/* ---- the new owner ---- */

/* The state of a piece that waits for its workers, from its beginning on, part by part; the first
 * part is at least LANE_STATE_HEAD_BYTES, or all. -ENOENT: not here; -EBUSY: it does not wait;
 * -EINVAL: `offset` is not where the last part ended; -EBADMSG: not the state of such a piece, or
 * more than it has. */
int lane_state_put(struct lane *lane, uint32_t job, uint32_t piece, uint64_t offset,
                   const void *data, size_t bytes);
#define LANE_STATE_HEAD_BYTES 8192

/* The pieces have these rounds behind them, and all state that they need: the next one is open.
 * Round 0: its workers will say. -ENOENT, -EBUSY as above; -EINVAL: no such round; -EBADMSG: state
 * is missing, or is that of another round. After an error none is installed. */
int lane_install(struct lane *lane, uint32_t job, const uint32_t *pieces, const uint64_t *rounds,
                 size_t count);
/* Each has its keeper at hand, if it is to have one, and where it was installed that has its state:
 * from then on it is in no memory alone. -EAGAIN: not yet, `moving_news` is called when it may be
 * so; -ENOENT: one is not here; -ECONNABORTED: the job has failed. */
int lane_copied(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

#endif
