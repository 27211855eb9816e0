/* Slow lanes: what packer/growth/explore.h decides of a job, carried out. README: K46. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_EXPLORING_H
#define GRADPOOL_COORDINATOR_GROWTH_EXPLORING_H

#include <stdint.h>

struct exploring;
struct job;

/* So many rounds of the job have been measured since the look before: one decision at most. */
void exploring_look(struct job *job, uint64_t rounds, uint64_t elapsed_ns);
void exploring_free(struct exploring *exploring);

#endif
