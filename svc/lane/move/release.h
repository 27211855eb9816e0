/* Releases pieces that will move: their rounds in progress complete, and no new round begins (A26,
 * A38). Functions of this header must run on the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_RELEASE_H
#define GRADPOOL_LANE_MOVE_RELEASE_H

#include "svc/lane/lane.h"

/* ---- the former owner ---- */

/* Requests a release at the best time, which is after a round of all the pieces, because the time
 * until the next announcement is then longest. `moving_news` is called when a call of
 * lane_may_release() is useful (A38). The caller passes `ret_wish` to lane_may_release(). Returns 0
 * or an error of lane_release(). */
struct lane_wish {
    /* sum of the numbers of the pieces' open rounds at the time of the request */
    uint64_t rounds;
    uint64_t until_ns; /* deadline at which the pieces are released in any case */
};
int lane_wish(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
              uint64_t now_ns, struct lane_wish *ret_wish);
/* Returns 1 if the deadline of the request has passed, or if the pieces are between two iterations
 * and have had a round since the request. Otherwise returns 0, or an error of
 * lane_is_releasing(). */
int lane_may_release(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
                     const struct lane_wish *wish, uint64_t now_ns);
/* Returns -EAGAIN if a piece has stored state, and some of its new ranks have not reported their
 * standing. The state can move only after these reports (A27). Returns 0 otherwise. Unknown pieces
 * are ignored. */
int lane_may_leave(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* Returns -EAGAIN if a copy of a piece's state still has to be read (A49), otherwise 0. */
int lane_may_move(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* Releases the pieces: no further round begins, and a round that has begun completes. Returns 0 or
 * an error; after an error no piece is released. -ENOENT: the lane does not have a piece.
 * -ECONNABORTED: the job has failed. Releasing a piece twice has no effect. */
int lane_release(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* Returns the number of frozen pieces at the beginning of the list. A piece is frozen if it is
 * released and none of its reads and writes is posted. A frozen piece stays frozen until it is
 * thawed or dropped. */
size_t lane_rested(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* Returns 0 if all pieces are released, or their release is pending. -ECANCELED: a piece was thawed
 * or dropped after the request. -ECONNABORTED: the job has failed. */
int lane_is_releasing(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* Serves the pieces again, beginning with the announcements that wait, and cancels pending requests
 * to release them. Pieces that are not released or not on this lane are ignored. */
void lane_thaw(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

#endif
