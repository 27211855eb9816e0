/* Pieces that are released (A26), or are to be behind a round (A38). */
#ifndef GRADPOOL_LANE_PIECE_REST_H
#define GRADPOOL_LANE_PIECE_REST_H

#include "svc/lane/types.h"

static inline bool piece_is_frozen(const struct piece *p)
{
    return p->is_held && p->state == PIECE_COLLECTING;
}
/* Counted in its job: whether it is to be released behind a round. */
void piece_wish(struct piece *p, bool is_wished);
/* No round of it begins any more. */
void piece_hold(struct piece *p);
/* Something that may have been waited for: whoever moves pieces looks again. */
void release_tell(const struct lane *lane);
/* Of a piece that is held: nothing of it is posted, read or written any more. */
void piece_rest(struct piece *p);
int piece_find_frozen(struct lane *lane, uint32_t job, uint32_t id, struct piece **ret_piece);
/* Something of the job was done. Tells whoever waits for the end of a round of all. */
void release_note(struct lane_job *job);

#endif
