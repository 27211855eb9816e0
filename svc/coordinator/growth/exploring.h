/* Load leaves slow lanes: decisions of packer/growth/explore.h, carried out. RULES.md: K46. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_EXPLORING_H
#define GRADPOOL_COORDINATOR_GROWTH_EXPLORING_H

#include <stdint.h>

struct exploring;
struct job;

/* Handles a look with `rounds` measured rounds in `elapsed_ns`: at most one decision for the
 * job. */
void exploring_look(struct job *job, uint64_t rounds, uint64_t elapsed_ns);
void exploring_free(struct exploring *exploring);

#endif
