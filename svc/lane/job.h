/* A job on a lane: made, freed; its tickets and the places of its workers. */
#ifndef GRADPOOL_LANE_JOB_H
#define GRADPOOL_LANE_JOB_H

#include "svc/lane/types.h"

struct worker *job_peer(struct lane_job *job, uint32_t number); /* NULL: none, or no room */
/* Arena memory of a job without pieces. */
size_t job_bytes(uint32_t workers);
int job_create(struct lane *lane, uint32_t id, const char *name, uint32_t workers,
               struct lane_job **ret_job);
/* Frees it once no operation touches its memory any more; called again after each completion. */
void job_release(struct lane_job *job);
int job_grant(struct lane_job *job, const struct record_connect *ticket);
/* Takes the grant that matches whole, once: -EACCES when there is none. */
int job_redeem(struct lane_job *job, const struct record_connect *ticket);

#endif
