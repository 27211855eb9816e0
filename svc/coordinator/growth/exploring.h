/* Moves load from slow lanes to faster lanes. packer/explore/explore.h has the rules (RULES.md:
 * K46). */
#ifndef GRADPOOL_COORDINATOR_GROWTH_EXPLORING_H
#define GRADPOOL_COORDINATOR_GROWTH_EXPLORING_H

#include <stdint.h>

struct exploring;
struct job;

/* Handles a measurement of the job: `rounds` rounds ended in `elapsed_ns`. Begins at most one move
 * of the job's pieces. */
void exploring_look(struct job *job, uint64_t rounds, uint64_t elapsed_ns);
void exploring_free(struct exploring *exploring);

#endif
