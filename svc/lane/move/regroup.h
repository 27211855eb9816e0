/* Elastic jobs: pieces get another set of ranks and stay on their lane (A40 to A44). Functions of
 * this header are for the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_REGROUP_H
#define GRADPOOL_LANE_MOVE_REGROUP_H

#include "svc/lane/lane.h"

/* From now on the loss or goodbye of a rank fails no round, because the coordinator decides how the
 * job continues. Unknown jobs are ignored. */
void lane_set_elastic(struct lane *lane, uint32_t job);

/* `gone` (a bitmap of RECORD_MISSING_WORDS) lists ranks that are no longer in the job. Closes their
 * connections, invalidates their tickets, and gives up the rounds in progress that need them.
 * Unknown jobs are ignored. */
void lane_let_go(struct lane *lane, uint32_t job, const uint64_t *gone);

/* Like lane_place() with `recovering`, but a piece may already be here, if it is released, at rest
 * and under an earlier epoch. Such a piece keeps its state for the new ranks. -ENOENT: unknown job;
 * -EBUSY: a piece is not at rest; other errors of lane_place(). After an error some pieces may have
 * their new ranks; the call may be repeated. */
int lane_regroup(struct lane *lane, uint32_t job, uint32_t epoch, const struct lane_piece *pieces,
                 size_t count);

/* Calls `each` for every rank whose connection has ended without a goodbye. `may_return`: another
 * connection may follow (A70). Ranks that cannot return are listed for elastic jobs only, until
 * lane_let_go(). */
void lane_each_lost(const struct lane *lane,
                    void (*each)(void *context, uint32_t job, uint32_t rank, const char *peer,
                                 bool may_return),
                    void *context);

#endif
