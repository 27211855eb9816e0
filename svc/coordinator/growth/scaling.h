/* Growing and shrinking: which lanes are open, which local aggregators run. The rules are pure
 * (packer/scale.h: G1 to G13); here is what they see, and what is done about it. README: K30. */
#ifndef GRADPOOL_COORDINATOR_GROWTH_SCALING_H
#define GRADPOOL_COORDINATOR_GROWTH_SCALING_H

#include "packer/scale.h"
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

void scaling_init(struct service *s);
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
/* How many more lanes may open. */
size_t scaling_room(const struct service *s);
/* The same for who cannot wait: what is about to come opens the fewer. */
size_t scaling_room_now(const struct service *s);
/* A plan takes it: it opens. */
void scaling_open(struct lane *lane);
/* Whether a job that finds no lane as it should may wait for an aggregator to start. */
bool scaling_may_start(const struct job *job);
/* Starts the aggregators that the plan needs; false: it needs none. */
bool scaling_start_for(struct job *job, const struct packer_plan *plan);
/* For a job that finds no lane at all, under any policy: whether it may wait for an aggregator to
 * come, and it does then. */
bool scaling_wait_for_any(struct job *job);
/* It has its lanes, and waits no longer. */
void scaling_placed(struct job *job);
/* Why it stays where it is although it loses more than its limit; "": it does not. */
#define SCALING_STAY_BYTES 256
const char *scaling_stay_text(const struct job *job, char *text, size_t text_bytes);
const char *scaling_verb_name(enum scale_verb verb);

/* --- scaling_view.c --- */

/* What there is, as the rules see it; who stands behind each number. */
struct scaling_look {
    struct scale_seen seen;
    struct scale_lane *lanes;
    struct scale_job *jobs;
    struct scale_task *tasks;
    struct scale_wish *wishes;
    struct budgets budgets;
    struct job **owners; /* of jobs */
    uint32_t *numbers;   /* of tasks */
};

/* -ENOMEM. */
int scaling_look_make(struct service *s, struct scaling_look *ret_look);
void scaling_look_free(struct scaling_look *look);
/* A lane of an aggregator that does not run has no number yet: this one, in what rules see. */
uint32_t scaling_slot_lane(const struct slot *slot, uint32_t index);
struct slot *scaling_slot_of_lane(struct service *s, uint32_t lane);

/* Some jobs' tasks on their way from it have come, or stay. */
void scaling_left(struct service *s, uint32_t lane);

/* --- scaling_moves.c --- */

/* Begins to move tasks of the job; `source` hears of the end by scaling_left(), 0: nobody does.
 * Whether they are on their way. */
bool scaling_move(struct job *job, const struct task_move *moves, size_t count, uint32_t source);
/* The same for what is not growth; `done` comes from the loop, once, and the job may be gone. */
typedef void (*trip_done_fn)(struct service *s, uint32_t job, bool has_moved);
bool scaling_trip(struct job *job, const struct task_move *moves, size_t count, trip_done_fn done);
void scaling_moves_destroy(struct service *s);

#endif
