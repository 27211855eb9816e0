/* In an elastic job, pieces receive another set of ranks while they stay on their lane (A40 to
 * A44). Functions of this header must run on the lane's thread. */
#ifndef GRADPOOL_LANE_MOVE_REGROUP_H
#define GRADPOOL_LANE_MOVE_REGROUP_H

#include "svc/lane/lane.h"

/* Makes the job elastic: a lost rank or a goodbye no longer fails a round, because the coordinator
 * decides how the job continues. Unknown jobs are ignored. */
void lane_set_elastic(struct lane *lane, uint32_t job);

/* `gone`: bitmap (RECORD_MISSING_WORDS words) of ranks that are no longer in the job. Their
 * connections are closed, their tickets become invalid, and rounds in progress that need these
 * ranks are aborted. Unknown jobs are ignored. */
void lane_let_go(struct lane *lane, uint32_t job, const uint64_t *gone);

/* Like lane_place() with `recovering`, but a piece may already be on this lane, frozen and under an
 * earlier epoch. Such a piece keeps its state for the new ranks. Returns 0, -ENOENT for an unknown
 * job, -EBUSY if a piece is not frozen, or an error of lane_place(). After an error some pieces may
 * have their new ranks; the call may be repeated. */
int lane_regroup(struct lane *lane, uint32_t job, uint32_t epoch, const struct lane_piece *pieces,
                 size_t count);

/* A rank whose connection has ended. `entered` is that of the ticket of this connection. */
struct lane_lost {
    uint32_t job, rank, entered;
    const char *peer;
    bool may_return;
};

/* Calls `each` for every rank whose connection has ended without a goodbye. `may_return`: the rank
 * may connect again (A70). Ranks that cannot return are included only in elastic jobs, and only
 * until lane_let_go() is called for them, or a later worker of the rank gets a ticket. */
void lane_each_lost(const struct lane *lane,
                    void (*each)(void *context, const struct lane_lost *lost), void *context);

#endif
