/* Ranks whose memory does not respond. A process that is stopped while a lane reads its memory
 * delays the rounds that the process has announced. RULES.md: A79. */
#ifndef GRADPOOL_LANE_CHUNK_STUCK_H
#define GRADPOOL_LANE_CHUNK_STUCK_H

#include "svc/lane/types.h"

/* stuck_posted(): `count` reads or writes of the worker's memory were posted. stuck_done(): one of
 * them has completed. */
void stuck_posted(struct worker *w, uint32_t count);
void stuck_done(struct worker *w);
/* Returns whether operations are posted and none has completed for a second. */
bool stuck_is(const struct worker *w, uint64_t now_ns);
/* Returns whether a round of the piece is in progress and this rank's memory does not respond. */
bool stuck_holds(const struct piece *p, const struct rank *rank, uint64_t now_ns);

/* If a round of these pieces waits for a rank whose memory does not respond, writes a text that
 * names this rank. Returns whether there is such a rank. */
bool lane_stuck(struct lane *lane, uint32_t job, const uint32_t *pieces, size_t count, char *text,
                size_t room);

#endif
