/* Ranks whose memory does not answer: a process that is stopped in mid-read holds up its rounds,
 * though it has pushed. README: A79. */
#ifndef GRADPOOL_LANE_CHUNK_STUCK_H
#define GRADPOOL_LANE_CHUNK_STUCK_H

#include "svc/lane/types.h"

/* So many reads or writes were posted; one is over. */
void stuck_posted(struct worker *w, uint32_t count);
void stuck_done(struct worker *w);
/* Something is posted, and nothing came back for a second. */
bool stuck_is(const struct worker *w, uint64_t now_ns);
/* The piece is under way, and this rank holds it up. */
bool stuck_holds(const struct piece *p, const struct rank *rank, uint64_t now_ns);

/* "waits for the memory of rank 3 of job 'x' (10.0.0.3:51234): ..." if a round of these pieces
 * does. */
bool lane_stuck(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count, char *text,
                size_t room);

#endif
