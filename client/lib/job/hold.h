/* Iterations of a worker, and the hold that stops its rounds at the end of an iteration. Called
 * with the job's lock held. README: L33. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_HOLD_H
#define GRADPOOL_CLIENT_LIB_JOB_HOLD_H

#include "client/gradpool.h"
#include "client/lib/session/control.h"

#include <pthread.h>

/* An index is GRADPOOL__WIRE__HOLD_SCOPE__HOLD_UPDATES or ..._HOLD_ROUNDS. */
#define HOLD_SCOPES 2

struct iterations {
    uint64_t now; /* newest iteration in which a round has begun; 0: none */
    /* number of consecutive iterations, up to `now`, in which each tensor had one round; -1: the
     * present iteration is left out of the count */
    int in_a_row;
    /* parts: number of tensors that have had a round in any iteration; pushed: number of tensors
     * with a round in iteration `now` */
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
    uint64_t id;     /* number that the coordinator gave to the hold; 0: no hold is in force */
    uint32_t scope;  /* scope in which the hold counts iterations */
    uint64_t last;   /* last permitted iteration; rounds of later iterations wait */
    bool keeps_sets; /* a push of parameters after `last` waits, too */
    /* this rank cannot stop at the end of an iteration; the reason is `why` */
    bool has_failed;
    struct err why;
    pthread_t pusher; /* thread that called push last */
    bool stands;      /* the thread `pusher` waits for other ranks */
    bool is_behind;   /* a push of an iteration after `last` waits */
    bool saves;       /* gp_job_snapshot() or gp_job_restore() is running */
    /* the coordinator has answered that the call waits for the end of the hold */
    bool is_taken;
    int state;       /* last reported state, an enum of the protocol */
    bool is_telling; /* a report has no reply yet */
    /* index of the newest report; two reports alternate, because a report must not change before
     * its reply */
    uint32_t telling;
    struct hold_report reports[2];
};

/* Finds the iteration of a call, for each scope; 0: the call belongs to no iteration. If one tensor
 * of the call already has a round in the present iteration, the call begins the next one. */
void hold_find_iterations(const struct gp_job *job, const gp_item *items, size_t count,
                          uint8_t operation, uint64_t *ret_iterations);
/* Counts the rounds of a call, which begin now or are queued. */
void hold_note_push(struct gp_job *job, const gp_item *items, size_t count, uint8_t operation,
                    const uint64_t *iterations);
/* Counts a newly declared tensor. The present iteration is then left out of the count, and the end
 * of an iteration is unknown until some iterations in a row have had one round of each tensor. */
void hold_note_tensor(gp_tensor *t);
/* Removes a tensor from the counts. */
void hold_forget_tensor(const gp_tensor *t);
/* Returns whether the tensor's next push has to wait for the end of the hold. */
bool hold_stops(const gp_tensor *t);
/* Sets whether the calling thread waits for other ranks. */
void hold_note_standing(struct gp_job *job, bool stands);
/* Sets whether a snapshot or restore is running. Meanwhile no worker may enter the job, because the
 * call needs fixed ranks. The call may begin when hold_lets_save() returns true; engine_run() can
 * wait for this. */
void hold_note_saving(struct gp_job *job, bool saves);
bool hold_lets_save(const struct gp_job *job);
/* Reports a changed state to the coordinator. Must be called after each event that may end an
 * iteration. */
void hold_check(struct gp_job *job);
/* Handles a request of the coordinator. Returns true if stopped pushes may begin; the caller then
 * begins these pushes and calls hold_check(). False: a newer hold is in force. */
bool hold_take(struct gp_job *job, const Gradpool__Wire__Hold *wish);

#endif
