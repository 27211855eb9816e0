/* Iterations as a worker sees them, and the hold that stops its rounds at the end of one. Called
 * with the job's lock held. README: L33. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_HOLD_H
#define GRADPOOL_CLIENT_LIB_JOB_HOLD_H

#include "client/gradpool.h"
#include "client/lib/session/control.h"

#include <pthread.h>

/* Index: GRADPOOL__WIRE__HOLD_SCOPE__HOLD_UPDATES or ..._HOLD_ROUNDS. */
#define HOLD_SCOPES 2

struct iterations {
    uint64_t now; /* newest iteration in which a round has begun; 0: none */
    /* number of consecutive iterations up to now with a round of each tensor; -1: `now` does not
     * count */
    int in_a_row;
    /* parts: tensors that ever had a round. pushed: those that have one in `now` */
    uint32_t parts, pushed;
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
    uint64_t id;     /* number that the coordinator gave to the hold; 0: no hold */
    uint32_t scope;  /* scope that decides what an iteration is */
    uint64_t last;   /* last iteration that may run; rounds of later ones wait */
    bool keeps_sets; /* a push of parameters after `last` waits, too */
    /* `last` has ended differently from the iterations before; `why` has the cause */
    bool has_failed;
    struct err why;
    pthread_t pusher; /* the thread that pushed last */
    bool stands;      /* `pusher` waits for other ranks, and pushes nothing until then */
    bool is_behind;   /* a push of a later iteration waits */
    bool saves;       /* gp_job_snapshot() or gp_job_restore() is running */
    bool is_taken;    /* the coordinator knows that this call waits for the end of the hold */
    int state;        /* last reported state, an enum of the protocol */
    bool is_telling;  /* a report has no reply yet */
    /* index of that report; two reports alternate, because a call is used until its reply
     * arrives */
    uint32_t telling;
    struct hold_report reports[2];
};

/* Finds, for each scope, the iteration to which a call belongs; 0: none. A tensor that is pushed
 * again begins the next iteration, for all tensors of that call. */
void hold_find_iterations(const struct gp_job *job, const gp_item *items, size_t count,
                          uint8_t operation, uint64_t *ret_iterations);
/* Records that the rounds of a call begin or are queued. */
void hold_note_push(struct gp_job *job, const gp_item *items, size_t count, uint8_t operation,
                    const uint64_t *iterations);
/* Records that a tensor was declared: the end of an iteration has to be determined again. */
void hold_note_tensor(gp_tensor *t);
/* Records that a tensor is removed. */
void hold_forget_tensor(const gp_tensor *t);
/* Returns whether the tensor's next push has to wait until the hold is over. */
bool hold_stops(const gp_tensor *t);
/* Records that the calling thread waits for other ranks (true), or no longer does. */
void hold_note_standing(struct gp_job *job, bool stands);
/* Records that a snapshot or restore is running. It concerns the job's present ranks, so no worker
 * enters meanwhile. The call may begin when hold_lets_save() returns true, for which engine_run()
 * can wait. */
void hold_note_saving(struct gp_job *job, bool saves);
bool hold_lets_save(const struct gp_job *job);
/* Reports a change to the coordinator. Called after anything that may have ended an iteration. */
void hold_check(struct gp_job *job);
/* Handles a request of the coordinator. True: pushes that were held may begin, and hold_check() has
 * to be called. */
bool hold_take(struct gp_job *job, const Gradpool__Wire__Hold *wish);

#endif
