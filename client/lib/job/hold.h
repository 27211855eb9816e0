/* Iterations as a worker sees them, and what holds its rounds at the end of one. With the job's
 * lock. README: L33. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_HOLD_H
#define GRADPOOL_CLIENT_LIB_JOB_HOLD_H

#include "client/gradpool.h"
#include "client/lib/session/control.h"

#include <pthread.h>

/* By scope: GRADPOOL__WIRE__HOLD_SCOPE__HOLD_UPDATES, ..._HOLD_ROUNDS. */
#define HOLD_SCOPES 2

struct iterations {
    uint64_t now; /* the last that a round was begun of; 0: none was */
    int in_a_row; /* that each tensor had its round in, up to now; -1: this one does not count */
    uint32_t parts, pushed; /* tensors that ever had a round; those of them that had one in `now` */
};

/* What the coordinator is told. */
struct hold_report {
    struct gp_job *job;
    int state;
    struct err why;
    struct control_call call;
    Gradpool__Wire__HeldRequest body;
};

struct hold {
    struct iterations scopes[HOLD_SCOPES];
    uint64_t id;     /* of the coordinator; 0: nothing is held */
    uint32_t scope;  /* that it is of */
    uint64_t last;   /* rounds of later iterations wait */
    bool keeps_sets; /* behind `last` parameters are set: that waits, and all that is set later */
    bool has_failed; /* `last` has ended as no other had: */
    struct err why;
    pthread_t pusher; /* the thread that pushed last */
    bool stands;      /* that one waits for others to come, and pushes nothing before */
    bool is_behind;   /* something of a later iteration waits */
    bool saves;       /* gp_job_snapshot() or gp_job_restore() is under way, or waits to be ... */
    bool is_taken;    /* ... until the hold is over, since the coordinator had counted on it */
    int state;        /* of the wire's */
    bool is_telling;  /* one of these is on its way, ... */
    uint32_t telling; /* ... this one: by turns, since a call is looked at when it is over */
    struct hold_report reports[2];
};

/* A tensor that comes again begins the next iteration, with all tensors of that call. Which ones a
 * call is of, by scope; 0: of none. */
void hold_find_iterations(const struct gp_job *job, const gp_item *items, size_t count,
                          uint8_t operation, uint64_t *ret_iterations);
/* The call's rounds begin, or are queued. */
void hold_note_push(struct gp_job *job, const gp_item *items, size_t count, uint8_t operation,
                    const uint64_t *iterations);
/* It was declared: where an iteration ends has to be seen anew. */
void hold_note_tensor(gp_tensor *t);
/* A tensor is removed. */
void hold_forget_tensor(const gp_tensor *t);
/* The tensor's next push has to wait until the hold is over. */
bool hold_stops(const gp_tensor *t);
/* The calling thread waits for others to come (true), or does no more. */
void hold_note_standing(struct gp_job *job, bool stands);
/* What the job saves is of the ranks that it has: nobody enters meanwhile. It may begin when
 * hold_lets_save(), for which engine_run() can wait. */
void hold_note_saving(struct gp_job *job, bool saves);
bool hold_lets_save(const struct gp_job *job);
/* After anything that may have ended an iteration. */
void hold_check(struct gp_job *job);
/* A wish of the coordinator. True: pushes that were held may begin, and hold_check() is due. */
bool hold_take(struct gp_job *job, const Gradpool__Wire__Hold *wish);

#endif
