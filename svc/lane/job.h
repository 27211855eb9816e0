/* A job on a lane: creation and end, tickets, and the structs of its workers. */
#ifndef GRADPOOL_LANE_JOB_H
#define GRADPOOL_LANE_JOB_H

#include "svc/lane/types.h"

/* Returns the worker struct of a rank or a replica holder, or NULL if there is no such rank or no
 * free struct. */
struct worker *job_peer(struct lane_job *job, uint32_t number);
/* Returns the bytes of the arena that a job without pieces uses. */
size_t job_bytes(uint32_t workers);
/* `gradients`: maximum number of gradients of one rank in a round. */
int job_create(struct lane *lane, uint32_t id, const char *name, uint32_t workers,
               uint32_t gradients, struct lane_job **ret_job);
/* Frees a dropped job if no operation uses its memory and no connection is open. Called again after
 * each completion. */
void job_release(struct lane_job *job);
int job_grant(struct lane_job *job, const struct record_connect *ticket);
/* Removes the grant that matches the ticket. Returns 0, or -EACCES if there is no such grant. */
int job_redeem(struct lane_job *job, const struct record_connect *ticket);

#endif
