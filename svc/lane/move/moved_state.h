/* State of a piece that moves: read at the former owner, written at the new one (A27 to A29).
 * Functions of this header belong to the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_MOVED_STATE_H
#define GRADPOOL_LANE_MOVE_MOVED_STATE_H

#include "svc/lane/lane.h"

struct lane_standing {
    uint64_t round;       /* newest committed round; 0: none, or unknown here */
    uint64_t state_bytes; /* bytes of state that a new owner needs besides the round */
    /* updates since the parameters were set, plus one; 0: none set, or not usable */
    uint64_t steps;
    /* round and state depend on workers that have not reported, or on a copy still being read */
    bool is_recovering;
};
/* Standing of a frozen piece. -ENOENT: not here; -EBUSY: not frozen; -ECONNABORTED: the job has
 * failed. */
int lane_standing(struct lane *lane, uint32_t job, uint32_t piece, struct lane_standing *ret);
/* Copies the state of a frozen piece from `offset` on, up to `room` bytes; returns how many. Errors
 * of lane_standing(); -EINVAL: `offset` is beyond the end. */
int64_t lane_state_read(struct lane *lane, uint32_t job, uint32_t piece, uint64_t offset,
                        void *ret_data, size_t room);

/* ---- the new owner ---- */

/* Writes the state of a piece that waits for its workers, part by part from the beginning; the
 * first part has at least LANE_STATE_HEAD_BYTES, or the whole state. -ENOENT: not here; -EBUSY: the
 * piece does not wait; -EINVAL: `offset` is not the end of the last part; -EBADMSG: not a state of
 * such a piece, or too long. */
int lane_state_put(struct lane *lane, uint32_t job, uint32_t piece, uint64_t offset,
                   const void *data, size_t bytes);
#define LANE_STATE_HEAD_BYTES 8192

/* Opens the pieces' next rounds: rounds[i] are committed, and their state has been put. Round 0:
 * the workers report their standing. -ENOENT, -EBUSY as above; -EINVAL: no such round; -EBADMSG:
 * the state is incomplete, or is that of another round. After an error no piece is installed. */
int lane_install(struct lane *lane, uint32_t job, const uint32_t *pieces, const uint64_t *rounds,
                 size_t count);
/* 0: each piece that needs a replica holder has one connected, and if state was sent here, the
 * holder has a copy of it. -EAGAIN: not yet, `moving_news` is called for a new check; -ENOENT: a
 * piece is not here; -ECONNABORTED: the job has failed. */
int lane_copied(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

#endif
