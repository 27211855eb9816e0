/* Chooses which stored result the next round overwrites, for a piece whose rounds do not need all
 * ranks. */
#ifndef GRADPOOL_LANE_CHUNK_ANSWERS_H
#define GRADPOOL_LANE_CHUNK_ANSWERS_H

#include "svc/lane/types.h"

/* Chooses the area for the result of the round that starts, and ends the answers that read this
 * area. The function never waits. An ended answer begins again with a newer result. */
void answers_make_room(struct piece *p);
/* Ends all answers of the piece, because its stored results are no longer valid. */
void answers_end(struct piece *p);

#endif
