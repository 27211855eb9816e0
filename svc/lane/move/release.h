/* Release of pieces that are to move: the former owner finishes their rounds and lets them rest
 * (A26, A38). Functions of this header belong to the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_RELEASE_H
#define GRADPOOL_LANE_MOVE_RELEASE_H

#include "svc/lane/lane.h"

/* ---- the former owner ---- */

/* Requests a release after a round of all the pieces, which leaves the longest time until the next
 * announcement; `moving_news` is called when lane_may_release() is worth a call (A38). `ret_wish`
 * is for lane_may_release(). Errors of lane_release(). */
struct lane_wish {
    uint64_t rounds;   /* sum of the open rounds of all pieces at the request */
    uint64_t until_ns; /* end of the wait: then the pieces are released at once */
};
int lane_wish(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
              uint64_t now_ns, struct lane_wish *ret_wish);
/* 1: now is a good moment for the release; 0: not yet. Errors of lane_is_releasing(). */
int lane_may_release(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
                     const struct lane_wish *wish, uint64_t now_ns);
/* 0, or -EAGAIN: a piece has kept state and waits for its new ranks to report their standing;
 * before that the state cannot move (A27). Unknown pieces are ignored. */
int lane_may_leave(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* 0, or -EAGAIN: a copy of a piece's state is still to be read (A49). */
int lane_may_move(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* From now on no round of these pieces begins; a begun round ends. -ENOENT: a piece is not here;
 * -ECONNABORTED: the job has failed; after an error no piece is released. Releasing a piece twice
 * has no effect. */
int lane_release(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* How many of the pieces, from the first on, are frozen: no read or write of them is posted. A
 * frozen piece stays so until thawed or dropped. */
size_t lane_rested(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* 0: all pieces are released, or to be released. -ECANCELED: a piece was thawed or dropped since;
 * -ECONNABORTED: the job has failed. */
int lane_is_releasing(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* Serves the pieces again, waiting announcements first, and cancels requests to release them.
 * Pieces that are not released or not here are ignored. */
void lane_thaw(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

#endif
