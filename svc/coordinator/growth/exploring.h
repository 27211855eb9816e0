/* Moves load away from slow lanes. packer/growth/explore.h has the rules. RULES.md: K46. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_EXPLORING_H
#define GRADPOOL_COORDINATOR_GROWTH_EXPLORING_H

#include <stdint.h>

struct exploring;
struct job;

/* Handles a look (one measurement) at the job: `rounds` rounds were measured in `elapsed_ns`. At
 * most one decision is made for the job. */
void exploring_look(struct job *job, uint64_t rounds, uint64_t elapsed_ns);
void exploring_free(struct exploring *exploring);

#endif
