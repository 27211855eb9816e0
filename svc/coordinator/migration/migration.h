/* A migration moves tasks of a job to other lanes while the job trains. Calls to lanes carry out
 * the migrator's state machine (migrator/README.md). Only a migration changes the route of a task
 * whose lane is alive. A task moves as a whole, keeps its number, and gets the job's next epoch. */
#ifndef GRADPOOL_COORDINATOR_MIGRATION_MIGRATION_H
#define GRADPOOL_COORDINATOR_MIGRATION_MIGRATION_H

#include "svc/base/err.h"
#include "svc/coordinator/job/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct moved {
    int code; /* 0, or a negative errno if no task has moved */
    const char *text;
    uint32_t tasks;
    uint64_t state_bytes;
    /* longest time from the first release of a piece until the new routes were sent to workers */
    uint64_t longest_ns;
};
/* Receives the result of a migration, once. Called by the event loop, never by moving_start(). The
 * job may have ended before this call. */
typedef void (*moving_done_fn)(struct service *s, uint64_t context, const struct moved *moved);

struct task_move {
    uint32_t task;
    uint32_t lane;      /* number of the target lane */
    enum share_how how; /* reason recorded for the target's share; SHARE_UNKNOWN: unchanged */
    bool is_forced;     /* permits a target that an operator has drained */
};

/* Begins to move tasks of the job: all of them, or none. Tasks that are already on their target are
 * skipped. Returns 0 or an error; after an error nothing has begun. -EBUSY: tasks of the job are
 * moving, or a snapshot is in progress. -ENOENT: no such task or lane. -ENOMEM. -EAGAIN: the cause
 * is temporary. An aggregator or a worker is away, a target is withheld or about to end, a task is
 * being placed, workers join or leave, or the job has failed. */
int moving_start(struct job *job, const struct task_move *moves, size_t count, moving_done_fn done,
                 uint64_t context, struct err *err);
/* Checks whether tasks of the job may move now, to any target. Returns 0, or -EBUSY or -EAGAIN
 * under the conditions of moving_start(). */
int moving_check(const struct job *job, struct err *err);
bool moving_is_busy(const struct job *job);
/* Returns whether tasks of the job are moving to a lane that an operator has drained in the
 * meantime, or that is about to end. */
bool moving_goes_astray(const struct job *job);
/* Returns whether the piece is moving and its new route is not stored yet. */
bool moving_has(const struct job *job, uint32_t piece);
/* Returns whether `holder` is beginning to copy pieces that move to `lane` (NULL: to any lane). */
bool moving_has_holder(const struct job *job, const struct aggregator *holder,
                       const struct lane *lane);
/* Called when a replica holder cannot connect to `lane` (NULL: to any lane). Uncommitted moves of
 * this job that need the connection are aborted. */
void moving_holder_unfit(const struct job *job, const struct aggregator *holder,
                         const struct lane *lane);
/* Ends the migration of a job that is ending. The targets drop the pieces. */
void moving_end_job(struct job *job);
/* Called when a worker leaves the job. Aborts the moves whose routes are not stored: their targets
 * were not informed that the worker has left. */
void moving_worker_leaves(const struct job *job);
/* Called when an aggregator is disconnected. Aborts moves to its lanes, from its lanes, and moves
 * for which the aggregator begins copies, unless their new routes are stored. When the aggregator
 * connects again, its list of pieces is compared with the store (K9). */
void moving_aggregator_away(struct aggregator *a);
/* Like moving_aggregator_away(), for a lost aggregator. Called before recovery_aggregator_lost(),
 * which places the aggregator's pieces again. */
void moving_aggregator_lost(struct aggregator *a);
/* Frees all migrations at the end of the service, without messages. */
void moving_destroy(struct service *s);

#endif
