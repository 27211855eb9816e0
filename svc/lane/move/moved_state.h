/* State of a piece that moves: read at the former owner, written at the new one (A27 to A29).
 * Functions of this header are for the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_MOVED_STATE_H
#define GRADPOOL_LANE_MOVE_MOVED_STATE_H

#include "svc/lane/lane.h"

struct lane_standing {
    uint64_t round; /* newest committed round; 0: none, or unknown on this lane */
    /* bytes of state that a new owner needs besides the number of the round */
    uint64_t state_bytes;
    /* number of updates since the parameters were set, plus one; 0: none are set, or they are not
     * usable */
    uint64_t steps;
    /* round and state depend on workers that have not reported, or on a copy that is still being
     * read */
    bool is_recovering;
};
/* Returns the standing of a frozen piece. -ENOENT: not here; -EBUSY: not frozen; -ECONNABORTED: the
 * job has failed. */
int lane_standing(struct lane *lane, uint32_t job, uint32_t piece, struct lane_standing *ret);
/* Copies the state of a frozen piece from `offset` on, up to `room` bytes, and returns the number
 * of bytes. Errors of lane_standing(); -EINVAL: `offset` is beyond the end. */
int64_t lane_state_read(struct lane *lane, uint32_t job, uint32_t piece, uint64_t offset,
                        void *ret_data, size_t room);

/* ---- the new owner ---- */

/* Writes the state of a piece that waits for its workers, in consecutive parts from the beginning.
 * The first part has at least LANE_STATE_HEAD_BYTES, or is the whole state. -ENOENT: not here;
 * -EBUSY: the piece does not wait; -EINVAL: `offset` is not the end of the last part; -EBADMSG: the
 * bytes are not a state of such a piece, or are too many. */
int lane_state_put(struct lane *lane, uint32_t job, uint32_t piece, uint64_t offset,
                   const void *data, size_t bytes);
#define LANE_STATE_HEAD_BYTES 8192

/* Opens the next rounds of the pieces: rounds[i] are committed, and their state was written. Round
 * 0: the workers report their standing. After an error no piece is installed: -ENOENT, -EBUSY as
 * for lane_state_put(); -EINVAL: no such round; -EBADMSG: the state is incomplete, or belongs to
 * another round. */
int lane_install(struct lane *lane, uint32_t job, const uint32_t *pieces, const uint64_t *rounds,
                 size_t count);
/* Returns 0 if each piece that needs a replica holder has a connected one, which also has a copy of
 * any state that was sent here. -EAGAIN: not yet; `moving_news` is called when a new check makes
 * sense. -ENOENT: a piece is not here; -ECONNABORTED: the job has failed. */
int lane_copied(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

#endif
