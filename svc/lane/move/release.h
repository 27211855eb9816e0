/* What a lane does for pieces that move to another one, or come from there: the former owner lets
 * go of them, what it keeps for them goes along, the new owner goes on where they stood (A26 to
 * A29). Everything here belongs to the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_RELEASE_H
#define GRADPOOL_LANE_MOVE_RELEASE_H

#include "svc/lane/lane.h"

/* ---- the former owner ---- */

/* The pieces are to be released behind a round of all of them, since that leaves the longest time
 * until somebody needs them again; `moving_news` is called when it may be so (A38). `ret_wish` is
 * for lane_may_release(). Errors as of lane_release(). */
struct lane_wish {
    uint64_t rounds;   /* that all of them had behind them; */
    uint64_t until_ns; /* not waited for longer */
};
int lane_wish(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
              uint64_t now_ns, struct lane_wish *ret_wish);
/* 1: now is the time, 0: it is not. -ECANCELED, -ECONNABORTED: as of lane_is_releasing(). */
int lane_may_release(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count,
                     const struct lane_wish *wish, uint64_t now_ns);
/* -EAGAIN: one of them keeps something and waits for its new ranks to say where they stand; what it
 * keeps could not go along before that (A27). Those that are not here are no matter. */
int lane_may_leave(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* -EAGAIN: a copy of its state is still to be looked at (A49). */
int lane_may_move(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* From now on no round of these pieces begins; one that has begun is finished. -ENOENT: one of them
 * is not here, -ECONNABORTED: the job has failed; then none is released. Releasing a piece again
 * has no effect. */
int lane_release(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* How many of them, from the first on, are frozen: nothing of them is posted, read or written. Each
 * stays so until it is thawed or dropped. */
size_t lane_rested(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* -ECANCELED: one of them was thawed or dropped since; -ECONNABORTED: the job has failed. */
int lane_is_releasing(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);
/* They are served again, what has waited first; nobody wishes them away any more. Pieces that are
 * not released, or not here, are no error. */
void lane_thaw(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count);

#endif
