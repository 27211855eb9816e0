/* Growth: which lanes are open and which local aggregators run. The rules are pure
 * (packer/growth/scale.h: G1 to G13); this room gives them their view and carries out their
 * decisions. RULES.md: K30. */
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
    struct list trips; /* moves of tasks under way (scaling_moves.c) */
};

/* -ENOMEM. */
int scaling_create(struct service *s);
void scaling_destroy(struct service *s);
/* The hold time as named by the option; 0: 30 s. */
uint64_t scaling_hold_ns(uint64_t named_ns);
/* Parks empty lanes beyond --lanes-max after a restart (K33). */
void scaling_restored(struct service *s);
/* Handles a measured window: at most one decision, carried out or begun. */
void scaling_window(struct service *s);
/* Whether windows are needed though no job trains, since a lane or aggregator may have to stop. */
bool scaling_is_due(const struct service *s);
/* Parks the lanes of a new aggregator, except as many as are wanted. `slot` NULL: joined by
 * hand. */
void scaling_joined(struct aggregator *a, const struct slot *slot);
/* Why growth does not move a job that exceeds its loss limit; "": no such reason. Returns `text`,
 * or "". */
#define SCALING_STAY_BYTES 256
const char *scaling_stay_text(const struct job *job, char *text, size_t text_bytes);
const char *scaling_verb_name(enum scale_verb verb);

/* Counts one job less whose tasks leave the lane, after they have moved or failed to move. */
void scaling_left(struct service *s, uint32_t lane);

#endif
