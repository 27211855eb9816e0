/* Who keeps copies of what lanes have of jobs with `durability replica` (K57). */
#ifndef GRADPOOL_COORDINATOR_KEEPING_H
#define GRADPOOL_COORDINATOR_KEEPING_H

#include "svc/coordinator/jobs.h"

/* The aggregator that is to keep a copy of the piece when it lies on that lane; 0: none. The one
 * that has it, if it may go on. */
uint32_t keeping_choose(const struct tensor *tensor, const struct piece *piece,
                        const struct lane *lane);
/* The piece lies on a lane that is told of that keeper with it; the keeper is to be told. */
void keeping_placed(struct piece *piece, uint32_t keeper);
/* Chooses for pieces whose keeper is gone, or is on their own aggregator now; tells keepers and
 * lanes what they do not know. To be called whenever that may have changed. */
void keeping_check(struct job *job);
void keeping_check_all(struct service *s);
/* It is back: it may have heard none of what it was told last. */
void keeping_aggregator_back(struct aggregator *a);
/* It is gone, and its pieces have new lanes, or none. */
void keeping_aggregator_lost(struct aggregator *a);
/* The job ends: nobody keeps anything of it. */
void keeping_end(struct job *job);
/* It cannot keep what the job has on that lane. */
void keeping_refused(struct aggregator *a, struct job *job, uint32_t lane, const char *why);
/* Whether it keeps anything of the job; of what is on that lane, unless that is NULL. */
bool keeping_has(const struct aggregator *a, const struct job *job, const struct lane *lane);

/* copy_tickets.c: a keeper wants a ticket for a lane. */
void copy_ticket_handle(struct peer *p, const envelope *message);

#endif
