/* Iterations as a worker sees them, and the hold of its rounds at the end of one. With the job's
 * lock. README: L33. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_HOLD_H
#define GRADPOOL_CLIENT_LIB_JOB_HOLD_H

#include "client/gradpool.h"
#include "client/lib/session/control.h"

#include <pthread.h>

/* By scope: GRADPOOL__WIRE__HOLD_SCOPE__HOLD_UPDATES, ..._HOLD_ROUNDS. */
#define HOLD_SCOPES 2

struct iterations {
    uint64_t now; /* newest iteration with a begun round; 0: none */
    int in_a_row; /* iterations up to now with a round of each tensor; -1: `now` does not count */
    uint32_t parts, pushed; /* tensors that ever had a round; those of them with one in `now` */
};

/* A report to the coordinator. */
struct hold_report {
    struct gp_job *job;
    int state;
    struct err why;
    struct control_call call;
    Gradpool__Wire__HeldRequest body;
};

struct hold {
    struct iterations scopes[HOLD_SCOPES];
    uint64_t id;     /* number of the hold, given by the coordinator; 0: no hold */
    uint32_t scope;  /* scope of the iterations that are held */
    uint64_t last;   /* rounds of later iterations wait */
    bool keeps_sets; /* pushes that set parameters behind `last` wait, too */
    bool has_failed; /* `last` has ended unlike the iterations before; `why` has the cause */
    struct err why;
    pthread_t pusher; /* the thread that pushed last */
    bool stands;      /* `pusher` waits for other ranks, and pushes nothing before that */
    bool is_behind;   /* a push of a later iteration waits */
    bool saves;       /* gp_job_snapshot() or gp_job_restore() is called */
    bool is_taken;    /* the save waits for the end of the hold, as the coordinator expects */
    int state;        /* last reported state, an enum of the wire */
    bool is_telling;  /* a report has no reply yet */
    /* index of that report; reports alternate, since a call is read until its reply */
    uint32_t telling;
    struct hold_report reports[2];
};

/* The iteration that a call is part of, by scope; 0: none. A tensor that is pushed again begins the
 * next iteration, with all tensors of that call. */
void hold_find_iterations(const struct gp_job *job, const gp_item *items, size_t count,
                          uint8_t operation, uint64_t *ret_iterations);
/* The call's rounds begin, or are queued. */
void hold_note_push(struct gp_job *job, const gp_item *items, size_t count, uint8_t operation,
                    const uint64_t *iterations);
/* A tensor was declared: the end of an iteration has to be found again. */
void hold_note_tensor(gp_tensor *t);
/* A tensor is removed. */
void hold_forget_tensor(const gp_tensor *t);
/* True when the tensor's next push has to wait until the hold is over. */
bool hold_stops(const gp_tensor *t);
/* The calling thread waits for other ranks (true), or no longer does. */
void hold_note_standing(struct gp_job *job, bool stands);
/* A snapshot or restore is of the job's present ranks: no worker enters meanwhile. It may begin
 * when hold_lets_save(), for which engine_run() can wait. */
void hold_note_saving(struct gp_job *job, bool saves);
bool hold_lets_save(const struct gp_job *job);
/* Reports a change, after anything that may have ended an iteration. */
void hold_check(struct gp_job *job);
/* A wish of the coordinator. True: pushes that were held may begin, and hold_check() is due. */
bool hold_take(struct gp_job *job, const Gradpool__Wire__Hold *wish);

#endif
