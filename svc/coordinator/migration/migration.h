/* Migration: moves tasks of a job to other lanes while it trains. Drives the migrator's state
 * machine (see its README) with calls to lanes. The only place that changes the route of a task
 * whose lane lives. Tasks move whole, keep their numbers, and get the job's next epoch. */
#ifndef GRADPOOL_COORDINATOR_MIGRATION_MIGRATION_H
#define GRADPOOL_COORDINATOR_MIGRATION_MIGRATION_H

#include "svc/base/err.h"
#include "svc/coordinator/job/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct moved {
    int code; /* negative errno: no task has moved */
    const char *text;
    uint32_t tasks;
    uint64_t state_bytes;
    uint64_t longest_ns; /* from the first release until workers got the new routes */
};
/* Result of a migration, once, from the loop, never inside moving_start(). The job may be gone. */
typedef void (*moving_done_fn)(struct service *s, uint64_t context, const struct moved *moved);

struct task_move {
    uint32_t task;
    uint32_t lane;      /* number of the target lane */
    enum share_how how; /* new reason of the target share; SHARE_UNKNOWN: keep */
    bool is_forced;     /* the target may be withheld */
};

/* Begins to move tasks of the job: all of them, or none. Tasks that are on their target already are
 * left out. Errors, with nothing begun: -EBUSY (tasks of the job move, or a snapshot is under way),
 * -ENOENT (no such task or lane), -EAGAIN (an aggregator or a worker is away, a target is withheld
 * or about to end, a task is being placed, workers come or go, or the job has failed), -ENOMEM. */
int moving_start(struct job *job, const struct task_move *moves, size_t count, moving_done_fn done,
                 uint64_t context, struct err *err);
/* Whether tasks of the job may move now, whatever the lanes: 0, or -EBUSY or -EAGAIN as
 * moving_start(). */
int moving_check(const struct job *job, struct err *err);
/* Whether tasks of the job move. */
bool moving_is_busy(const struct job *job);
/* Whether tasks of the job move to a lane that was withheld, or is about to end. */
bool moving_goes_astray(const struct job *job);
/* Whether the piece moves and its new route is not written yet. */
bool moving_has(const struct job *job, uint32_t piece);
/* Whether `keeper` begins to copy pieces that move to `lane` (NULL: to any lane). */
bool moving_has_keeper(const struct job *job, const struct aggregator *keeper,
                       const struct lane *lane);
/* `keeper` cannot reach `lane` (NULL: any lane): the uncommitted moves of this job that need it are
 * aborted. */
void moving_keeper_unfit(const struct job *job, const struct aggregator *keeper,
                         const struct lane *lane);
/* Ends the migration of a job that ends; targets drop the pieces. */
void moving_end_job(struct job *job);
/* A worker leaves the job: its uncommitted moves are aborted, since only the sources know of the
 * goodbye. */
void moving_worker_leaves(const struct job *job);
/* Aborts uncommitted moves in which the aggregator takes part; when it is back, K9 decides which
 * pieces it keeps. */
void moving_aggregator_away(struct aggregator *a);
/* The same for a lost aggregator, before recovery_aggregator_lost() handles the pieces. */
void moving_aggregator_lost(struct aggregator *a);
/* Frees all migrations at the end of the service, without messages. */
void moving_destroy(struct service *s);

#endif
