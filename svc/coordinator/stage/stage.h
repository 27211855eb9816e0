/* Stages of a job. Each stage has its own number of active workers. At a border every rank of the
 * job is in a call. The coordinator chooses the members of the next stage, stores them (K1), and
 * sends them to the lanes with tables before any rank continues. RULES.md: K109. */
#ifndef GRADPOOL_COORDINATOR_STAGE_STAGE_H
#define GRADPOOL_COORDINATOR_STAGE_STAGE_H

#include "svc/coordinator/job/job.h"

/* Handles a StageRequest. */
void stages_handle(struct peer *p, const envelope *message);
/* Continues a border after a change of the job's tensors. Answers the waiting ranks of a job that
 * has failed. */
void stages_check(struct job *job);
/* Called when a rank has left the job. No border can then be complete, so the waiting ranks receive
 * -EPIPE. */
void stages_rank_left(const struct session *session);
/* Fills in the present stage as lanes receive it. `ret_ranks` has RANKS_WORDS words, which the
 * message names. Returns false if no stage has begun. */
bool stage_message(const struct job *job, uint64_t *ret_ranks, WIRE(LaneStageRequest) * ret_stage);
/* Frees the stages of a job that ends. */
void stages_free(struct job *job);
int stages_restore(struct service *s, const struct store_tensor *row);
/* Adds a view of the job's stage to the view of the job. `take` allocates the memory: it returns
 * zeroed memory, or NULL. Returns false if memory is missing; the view is then incomplete, but
 * valid. */
bool stage_view_add(const struct job *job, void *(*take)(void *context, size_t bytes),
                    void *context, WIRE(JobView) * view);

#endif
