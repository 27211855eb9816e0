/* Moving a job's tasks to other lanes while it trains: drives the migrator's protocol (its README
 * tells it) with the calls that lanes answer, and is the one place that changes the route of a task
 * whose lane lives. Tasks move whole, keep their numbers, and get the job's next epoch. */
#ifndef GRADPOOL_COORDINATOR_MIGRATION_MIGRATION_H
#define GRADPOOL_COORDINATOR_MIGRATION_MIGRATION_H

#include "svc/base/err.h"
#include "svc/coordinator/job/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct moved {
    int code; /* negative errno: nothing has moved */
    const char *text;
    uint32_t tasks;
    uint64_t state_bytes;
    uint64_t longest_ns; /* from a lane's release of tasks until workers were told the new one */
};
/* Comes from the loop once, never from within moving_start(); the job may be gone. */
typedef void (*moving_done_fn)(struct service *s, uint64_t context, const struct moved *moved);

struct task_move {
    uint32_t task;
    uint32_t lane;      /* the target's number */
    enum share_how how; /* what is said of the target once it is there; SHARE_UNKNOWN: no change */
    bool is_forced;     /* a target that is withheld is better than none */
};

/* Begins to move tasks of the job; all of them move, or none does. Tasks that are there already are
 * left out. -EBUSY: tasks of this job are on their way; -ENOENT: no such task, or lane; -EAGAIN: a
 * lane's aggregator or a worker is away, a target is withheld, a task is being placed, or the job
 * has failed; -ENOMEM.
 * Nothing has begun then. */
int moving_start(struct job *job, const struct task_move *moves, size_t count, moving_done_fn done,
                 uint64_t context, struct err *err);
/* Whether any task of it may now, whatever the lanes: -EBUSY, also while a snapshot has released
 * its pieces, or -EAGAIN. */
int moving_check(const struct job *job, struct err *err);
/* Some of its tasks are on their way. */
bool moving_is_busy(const struct job *job);
/* Some are on their way to a lane that has been withheld meanwhile. */
bool moving_goes_astray(const struct job *job);
/* That piece is on its way, and its route is not written. */
bool moving_has(const struct job *job, uint32_t piece);
/* That aggregator begins to keep copies of what is on its way (to that lane, unless it is NULL). */
bool moving_has_keeper(const struct job *job, const struct aggregator *keeper,
                       const struct lane *lane);
/* ... and does not reach the lane: what was not written is undone. */
void moving_keeper_unfit(const struct job *job, const struct aggregator *keeper,
                         const struct lane *lane);
/* The job ends: both sides are told to forget it. */
void moving_end_job(struct job *job);
/* A worker says goodbye: what was not written is undone, for only the source knows of it. */
void moving_worker_leaves(const struct job *job);
/* What was not written is undone; when it is back, K9 says what it may keep. */
void moving_aggregator_away(struct aggregator *a);
/* The same, before recovery_aggregator_lost() looks at the pieces. */
void moving_aggregator_lost(struct aggregator *a);
/* At the end of the service: nobody is told anything. */
void moving_destroy(struct service *s);

#endif
