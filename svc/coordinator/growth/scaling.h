/* Growth decides which lanes are open and which local aggregators run. The rules are pure functions
 * (packer/growth/scale.h: G1 to G13). This room describes the service to the rules and carries out
 * their decisions (RULES.md: K30). */
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

int scaling_create(struct service *s);
void scaling_destroy(struct service *s);
/* Returns the hold time. `named_ns`: value of the option; 0: 30 s. */
uint64_t scaling_hold_ns(uint64_t named_ns);
/* Parks empty lanes in excess of --lanes-max after a restart (K33). */
void scaling_restored(struct service *s);
/* Handles a measured window: requests at most one decision from the rules, and begins to carry out
 * the decision. */
void scaling_window(struct service *s);
/* Returns whether growth needs measurements although no job trains: a lane may park, or an
 * aggregator may stop. */
bool scaling_is_due(const struct service *s);
/* Parks the lanes of a new aggregator that are not wanted. `slot` is NULL if an operator started
 * the aggregator by hand. */
void scaling_joined(struct aggregator *a, const struct slot *slot);
/* Writes the reason for which growth does not move a job that exceeds its loss limit; "": no reason
 * is known. Returns `text`, or "". */
#define SCALING_STAY_BYTES 256
const char *scaling_stay_text(const struct job *job, char *text, size_t text_bytes);
const char *scaling_verb_name(enum scale_verb verb);

/* Called when the moves of one job's tasks away from the lane have ended, with or without success.
 * Decrements lane->leaving. */
void scaling_left(struct service *s, uint32_t lane);

#endif
