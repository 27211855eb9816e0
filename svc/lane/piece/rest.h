/* Pieces that are released (A26), or will be released after a round (A38). */
#ifndef GRADPOOL_LANE_PIECE_REST_H
#define GRADPOOL_LANE_PIECE_REST_H

#include "svc/lane/worker/serving.h"

static inline bool piece_is_frozen(const struct piece *p)
{
    return p->is_held && p->state == PIECE_COLLECTING && !serving_writes(p, NULL, NULL);
}
/* Sets or clears the request to release the piece after a round. lane_job.wished is the number of
 * such requests. */
void piece_wish(struct piece *p, bool is_wished);
/* Prevents further rounds of the piece. */
void piece_hold(struct piece *p);
/* Calls options.moving_news, so that the process checks its moves again. */
void release_tell(const struct lane *lane);
/* Called when a held piece is frozen, because none of its operations is posted. Frees payloads. */
void piece_rest(struct piece *p);
/* Finds a frozen piece. Returns 0, -ENOENT if the piece is not here, -EBUSY if the piece is not
 * frozen, or -ECONNABORTED if the job has failed. */
int piece_find_frozen(struct lane *lane, uint32_t job, uint32_t id, struct piece **ret_piece);
/* Called after a round of the job. If pieces wait for a release and no round is in progress, calls
 * release_tell(). */
void release_note(struct lane_job *job);

#endif
