/* Workers of a job come and go: pieces get another set of ranks where they are (A40 to A44).
 * Everything here belongs to the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_REGROUP_H
#define GRADPOOL_LANE_MOVE_REGROUP_H

#include "svc/lane/lane.h"

/* From now on who is lost, or says goodbye, fails nothing by itself: somebody who knows all lanes
 * decides what becomes of the job. Unknown jobs are no error. */
void lane_set_elastic(struct lane *lane, uint32_t job);

/* These ranks (a bitmap of RECORD_MISSING_WORDS) are not in the job any more: their connections are
 * closed, their tickets void, and rounds of released pieces that have begun with them are given up:
 * those come to rest. */
void lane_let_go(struct lane *lane, uint32_t job, const uint64_t *gone);

/* As lane_place(), recovering, for pieces of which this lane may have some already: released, at
 * rest, under an earlier epoch and for other ranks. These keep what they have kept. -ENOENT: the
 * job is not known; -EBUSY: one is not at rest; -EINVAL, -ENOMEM, -ENOSPC as there. After an error
 * some may be done: it can be asked for again. */
int lane_regroup(struct lane *lane, uint32_t job, uint32_t epoch, const struct lane_piece *pieces,
                 size_t count);

/* Ranks whose connection has ended without a goodbye: while another one may follow (A70), and of
 * elastic jobs after that until they are let go. */
void lane_each_lost(const struct lane *lane,
                    void (*each)(void *context, uint32_t job, uint32_t rank, const char *peer,
                                 bool may_return),
                    void *context);

#endif
