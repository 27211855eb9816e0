/* Migration: moves tasks of a job to other lanes while the job trains. Executes the migrator's
 * state machine (see its README) with calls to lanes. Only migrations change the route of a task
 * whose lane is alive. Tasks move as a whole, keep their numbers, and get the next epoch of the
 * job. */
#ifndef GRADPOOL_COORDINATOR_MIGRATION_MIGRATION_H
#define GRADPOOL_COORDINATOR_MIGRATION_MIGRATION_H

#include "svc/base/err.h"
#include "svc/coordinator/job/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct moved {
    int code; /* 0, or a negative errno: no task has moved */
    const char *text;
    uint32_t tasks;
    uint64_t state_bytes;
    uint64_t longest_ns; /* longest time from the first release until workers got the new routes */
};
/* Receives the result of a migration, once. Called from the loop, never inside moving_start(). The
 * job may be gone by then. */
typedef void (*moving_done_fn)(struct service *s, uint64_t context, const struct moved *moved);

struct task_move {
    uint32_t task;
    uint32_t lane;      /* number of the target lane */
    enum share_how how; /* reason that the target's share gets; SHARE_UNKNOWN: unchanged */
    bool is_forced;     /* the target may be a withheld lane */
};

/* Begins to move tasks of the job. Either all of them move, or none. Tasks that are on their target
 * already are left out. Errors, with nothing begun: -EBUSY (tasks of the job are moving, or a
 * snapshot is in progress), -ENOENT (no such task or lane), -ENOMEM, -EAGAIN (an aggregator or a
 * worker is away; a target is withheld or about to end; a task is being placed; workers join or
 * leave; or the job has failed). */
int moving_start(struct job *job, const struct task_move *moves, size_t count, moving_done_fn done,
                 uint64_t context, struct err *err);
/* Returns whether tasks of the job may move now, for any target: 0, or -EBUSY or -EAGAIN like
 * moving_start(). */
int moving_check(const struct job *job, struct err *err);
/* Returns whether tasks of the job are moving. */
bool moving_is_busy(const struct job *job);
/* Returns whether tasks of the job are moving to a lane that was withheld or is about to end. */
bool moving_goes_astray(const struct job *job);
/* Returns whether the piece is moving and its new route is not written yet. */
bool moving_has(const struct job *job, uint32_t piece);
/* Returns whether `keeper` is beginning to copy pieces that move to `lane` (NULL: to any lane). */
bool moving_has_keeper(const struct job *job, const struct aggregator *keeper,
                       const struct lane *lane);
/* Handles a replica holder that cannot connect to `lane` (NULL: to any lane). Uncommitted moves of
 * this job that need the connection are aborted. */
void moving_keeper_unfit(const struct job *job, const struct aggregator *keeper,
                         const struct lane *lane);
/* Ends the migration of a job that is ending. The targets drop the pieces. */
void moving_end_job(struct job *job);
/* Handles a worker that leaves the job. Its uncommitted moves are aborted, because only the sources
 * know about the goodbye. */
void moving_worker_leaves(const struct job *job);
/* Handles an aggregator that is away: uncommitted moves in which it takes part are aborted. When it
 * is back, K9 decides which pieces it keeps. */
void moving_aggregator_away(struct aggregator *a);
/* The same for a lost aggregator; called before recovery_aggregator_lost(), which handles its
 * pieces. */
void moving_aggregator_lost(struct aggregator *a);
/* Frees all migrations at the end of the service, without messages. */
void moving_destroy(struct service *s);

#endif
