/* Releases pieces that are going to move: the former owner finishes their rounds, and no new round
 * begins (A26, A38). Functions of this header are for the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_RELEASE_H
#define GRADPOOL_LANE_MOVE_RELEASE_H

#include "svc/lane/lane.h"

/* ---- the former owner ---- */

/* Requests a release after a round of all the pieces, at the time that leaves the longest pause
 * until the next announcement. `moving_news` is called when calling lane_may_release() makes sense
 * (A38). `ret_wish` is the argument for lane_may_release(). Errors of lane_release(). */
struct lane_wish {
    uint64_t rounds;   /* sum of the open rounds of all pieces at the time of the request */
    uint64_t until_ns; /* end of the wait, when the pieces are released at once */
};
int lane_wish(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
              uint64_t now_ns, struct lane_wish *ret_wish);
/* Returns 1 if now is a good time for the release, 0 if not yet. Errors of lane_is_releasing(). */
int lane_may_release(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
                     const struct lane_wish *wish, uint64_t now_ns);
/* Returns -EAGAIN if a piece has stored state and waits until its new ranks have reported their
 * standing: its state cannot move before (A27). Otherwise 0. Unknown pieces are ignored. */
int lane_may_leave(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* Returns -EAGAIN if a copy of a piece's state still has to be read (A49); otherwise 0. */
int lane_may_move(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* From now on no round of these pieces begins. A round that has begun still ends. After an error no
 * piece is released: -ENOENT: a piece is not here; -ECONNABORTED: the job has failed. Releasing a
 * piece twice has no effect. */
int lane_release(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* Returns the number of pieces, counted from the first, that are frozen: no read or write of them
 * is posted. A frozen piece stays frozen until it is thawed or dropped. */
size_t lane_rested(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* Returns 0 if all pieces are released or going to be. -ECANCELED: a piece was thawed or dropped
 * since; -ECONNABORTED: the job has failed. */
int lane_is_releasing(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* Serves the pieces again, beginning with waiting announcements, and cancels requests to release
 * them. Pieces that are not released or not here are ignored. */
void lane_thaw(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

#endif
