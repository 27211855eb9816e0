/* Pieces that are released (A26), or are to be behind a round (A38), for the files of this folder
 * only. */
#ifndef GRADPOOL_AGGREGATOR_WISH_H
#define GRADPOOL_AGGREGATOR_WISH_H

#include "svc/aggregator/lane_types.h"

/* Something that may have been waited for: whoever moves pieces looks again. */
void release_tell(const struct lane *lane);
/* Of a piece that is held: nothing of it is posted, read or written any more. */
void piece_rest(struct piece *p);
int piece_find_frozen(struct lane *lane, uint32_t job, uint32_t id, struct piece **ret_piece);
/* It goes, and nobody need wait for a round of it. */
void release_forget(struct piece *p);
/* Something of the job was done. Tells whoever waits for the end of a round of all. */
void release_note(struct lane_job *job);

#endif
