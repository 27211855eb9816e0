/* Growing and shrinking: which lanes are open, which local aggregators run. The rules are pure
 * (packer/growth/scale.h: G1 to G13); here is what they see, and what is done about it. README:
 * K30. */
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
    struct list trips; /* tasks on their way: scaling_moves.c */
};

/* -ENOMEM. */
int scaling_create(struct service *s);
void scaling_destroy(struct service *s);
/* As it was named; 0: 30 s. */
uint64_t scaling_hold_ns(uint64_t named_ns);
/* Lanes of before are as many open as may be (K33). */
void scaling_restored(struct service *s);
/* A window has been measured: at most one decision, carried out or on its way. */
void scaling_window(struct service *s);
/* Windows are wanted though nobody trains: something is still to be parked or stopped. */
bool scaling_is_due(const struct service *s);
/* Its lanes are new: as many are open as are wanted. `slot` NULL: joined by hand. */
void scaling_joined(struct aggregator *a, const struct slot *slot);
/* Why it stays where it is although it loses more than its limit; "": it does not. */
#define SCALING_STAY_BYTES 256
const char *scaling_stay_text(const struct job *job, char *text, size_t text_bytes);
const char *scaling_verb_name(enum scale_verb verb);

/* Some jobs' tasks on their way from it have come, or stay. */
void scaling_left(struct service *s, uint32_t lane);

#endif
