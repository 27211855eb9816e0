/* Copies of tables: rings of this process for owners in other processes, copies on lanes of this
 * process, and logs of lanes of this process. */
#ifndef GRADPOOL_AGGREGATOR_COPYING_COPYING_H
#define GRADPOOL_AGGREGATOR_COPYING_COPYING_H

#include "svc/aggregator/internal.h"

/* copying_knows() returns whether this file handles the request. */
bool copying_knows(const envelope *request);
int copying_serve(struct aggregator *a, const envelope *request);
/* Lends the ring for the copy that a PlaceRequest places. Returns 0 or an error of
 * holder_lend_ring(). */
int copying_lend(struct aggregator *a, const Gradpool__Wire__PlaceRequest *request,
                 const char **ret_ring);
/* Drops the copy of the tables of lane `owner`, and ends its ring. */
void copying_end(struct aggregator *a, uint32_t job, uint32_t owner);
/* Drops all copies of the job, so that no lane reads a ring of the job. */
void copying_end_job(struct aggregator *a, uint32_t job);
/* Passes reports of lanes on to owners and to the coordinator. `again`: also reports that were sent
 * before, because the coordinator may not have received them. Returns 0 or an error; after an error
 * the coordinator is away. Owners receive their reports also while the coordinator is away. */
int copying_look(struct aggregator *a, bool again);
/* Passes reports of owners on to lanes. */
void copying_pass_on(struct aggregator *a);

#endif
