/* Iterations as a worker sees them, and what holds its updates at the end of one. With the job's
 * lock. README: L33. */
#ifndef GRADPOOL_CLIENT_HOLD_H
#define GRADPOOL_CLIENT_HOLD_H

#include "client/control.h"
#include "client/gradpool.h"

struct hold {
    uint64_t iteration; /* the last that an update was begun of; 0: none was */
    uint32_t in_a_row;  /* iterations that each tensor was updated in, up to now */
    struct err doubt;   /* why no end of one is known */
    uint64_t id;        /* of the coordinator; 0: nothing is held */
    uint64_t last;      /* updates of later iterations wait */
    bool has_failed;    /* `last` has ended as no other had */
    int state;          /* of the wire's */
    bool is_telling;
    int telling;
    struct err told;
    struct control_call call;
    Gradpool__Wire__HeldRequest report;
};

/* An iteration is one update of each tensor with a rule: a tensor that comes again begins the next.
 * Which one updates of these, in one call, are of. */
uint64_t hold_iteration_of(const struct gp_job *job, const gp_item *items, size_t count);
/* They have been prepared. */
void hold_note_updates(struct gp_job *job, const gp_item *items, size_t count, uint64_t iteration);
/* Parameters were set, or another tensor declared: where an iteration ends has to be seen anew. */
void hold_note_change(struct gp_job *job);
/* The tensor's next push has to wait until the hold is over. */
bool hold_stops(const struct gp_tensor *t);
/* After anything that may have ended an iteration. */
void hold_check(struct gp_job *job);
void hold_take(struct gp_job *job, const Gradpool__Wire__Hold *wish);

#endif
