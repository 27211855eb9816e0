/* State of a piece that moves: read on the former owner, written on the new owner (A27 to A29).
 * Functions of this header must run on the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_MOVED_STATE_H
#define GRADPOOL_LANE_MOVE_MOVED_STATE_H

#include "svc/lane/lane.h"

struct lane_standing {
    uint64_t round; /* newest committed round; 0: none, or not known on this lane */
    /* bytes of state that a new owner needs in addition to the round */
    uint64_t state_bytes;
    /* number of updates since the parameters were set, plus 1; 0: the parameters were never set, or
     * cannot be used */
    uint64_t steps;
    /* the values depend on workers that have not reported, or on a copy that is still being read */
    bool is_recovering;
};
/* Writes the round and the size of the state of a frozen piece to `ret`. Returns 0, -ENOENT if the
 * piece is not here, -EBUSY if the piece is not frozen, or -ECONNABORTED if the job has failed. */
int lane_standing(struct lane *lane, uint32_t job, uint32_t piece, struct lane_standing *ret);
/* Copies up to `room` bytes of the state of a frozen piece, from `offset` on. Returns the number of
 * bytes, an error of lane_standing(), or -EINVAL if `offset` is beyond the end. */
int64_t lane_state_read(struct lane *lane, uint32_t job, uint32_t piece, uint64_t offset,
                        void *ret_data, size_t room);

/* ---- the new owner ---- */

/* Writes the state of a piece that waits for its workers, in consecutive parts from the beginning.
 * The first part has at least LANE_STATE_HEAD_BYTES, or is the whole state. Returns 0 or an error.
 * -ENOENT: the piece is not here. -EBUSY: the piece expects no state. -EINVAL: `offset` is not the
 * end of the last part. -EBADMSG: the bytes are not a state of such a piece, or are too many. */
int lane_state_put(struct lane *lane, uint32_t job, uint32_t piece, uint64_t offset,
                   const void *data, size_t bytes);
#define LANE_STATE_HEAD_BYTES 16384

/* Opens the round after rounds[i] for each piece. The round rounds[i] is committed, and its state
 * was written before. If rounds[i] is 0, no round opens, and the workers report their standing
 * instead. Returns 0 or an error; after an error no piece has changed. -ENOENT, -EBUSY: as
 * lane_state_put(). -EINVAL: a round number out of range. -EBADMSG: the state is incomplete, or
 * belongs to another round. */
int lane_install(struct lane *lane, uint32_t job, const uint32_t *pieces, const uint64_t *rounds,
                 size_t count);
/* Checks the replica holders of these pieces. Returns 0 if each required holder is connected, and
 * has a copy of every state that lane_state_put() has written. -EAGAIN: a holder is not ready; the
 * lane calls `moving_news` when another check is useful. -ENOENT: the lane does not have a piece.
 * -ECONNABORTED: the job has failed. */
int lane_copied(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

#endif
