/* Moves load away from slow lanes, as packer/growth/explore.h decides. RULES.md: K46. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_EXPLORING_H
#define GRADPOOL_COORDINATOR_GROWTH_EXPLORING_H

#include <stdint.h>

struct exploring;
struct job;

/* Handles a look at the job with `rounds` measured rounds in `elapsed_ns`. Makes at most one
 * decision for the job. */
void exploring_look(struct job *job, uint64_t rounds, uint64_t elapsed_ns);
void exploring_free(struct exploring *exploring);

#endif
