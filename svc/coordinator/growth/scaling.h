/* Growth decides which lanes are open and which local aggregators run. The rules are pure functions
 * (packer/growth/scale.h: G1 to G13). This room builds their view of the service and carries out
 * their decisions. RULES.md: K30. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_SCALING_H
#define GRADPOOL_COORDINATOR_GROWTH_SCALING_H

#include "packer/growth/scale.h"
#include "svc/coordinator/placement/budget.h"

struct aggregator;
struct job;
struct lane;
struct service;
struct slot;
struct task_move;

struct scaling {
    bool is_on;
    struct scale state;
    struct list trips; /* moves of tasks in progress (scaling_moves.c) */
};

/* Creates the state. Returns 0 or -ENOMEM. */
int scaling_create(struct service *s);
void scaling_destroy(struct service *s);
/* Returns the hold time. `named_ns`: value of the option; 0: 30 s. */
uint64_t scaling_hold_ns(uint64_t named_ns);
/* Parks empty lanes beyond --lanes-max after a restart (K33). */
void scaling_restored(struct service *s);
/* Handles a measured window: makes at most one decision, and carries it out or begins to. */
void scaling_window(struct service *s);
/* Returns whether windows are needed even if no job trains, because a lane may have to park or an
 * aggregator to stop. */
bool scaling_is_due(const struct service *s);
/* Parks the lanes of a new aggregator that are not wanted. `slot` NULL: the aggregator was started
 * by hand. */
void scaling_joined(struct aggregator *a, const struct slot *slot);
/* Writes the reason for which growth does not move a job above its loss limit; "": no reason.
 * Returns `text`, or "". */
#define SCALING_STAY_BYTES 256
const char *scaling_stay_text(const struct job *job, char *text, size_t text_bytes);
const char *scaling_verb_name(enum scale_verb verb);

/* Reduces the number of jobs whose tasks are leaving the lane by one, because the tasks of a job
 * have moved or failed to move. */
void scaling_left(struct service *s, uint32_t lane);

#endif
