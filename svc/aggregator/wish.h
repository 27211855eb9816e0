/* Pieces that are to be released behind a round (A38), for the files of this folder only. */
#ifndef GRADPOOL_AGGREGATOR_WISH_H
#define GRADPOOL_AGGREGATOR_WISH_H

#include "svc/aggregator/lane_types.h"

/* It goes, and nobody need wait for a round of it. */
void release_forget(struct piece *p);
/* Something of the job was done. Tells whoever waits for the end of a round of all. */
void release_note(struct lane_job *job);

#endif
