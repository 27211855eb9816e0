/* Finds out, as a text, why a request is not over. Called with the job's lock held, which is
 * released meanwhile. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_STALL_H
#define GRADPOOL_CLIENT_LIB_ROUND_STALL_H

#include "client/lib/session/control.h"
#include "svc/wire/record.h"

struct gp_request;

/* A question to the coordinator about late ranks, and the newest answer (L59). */
struct late {
    struct control_call call;
    Gradpool__Wire__LateRequest request;
    uint64_t ranks[RECORD_MISSING_WORDS];
    bool is_asked; /* the call has no reply yet */
    char text[400];
};

/* Called after `timeout_ns`: sends queries to the lanes, drives the engine a little longer, and
 * stores the reason as the thread's last error. 0: the request is over after all. */
int stall_explain(struct gp_request *q, uint64_t timeout_ns);
/* Returns the time at which a warning is due, in a wait that begins or continues; UINT64_MAX:
 * never. */
uint64_t stall_due(struct gp_request *q, uint64_t now_ns);
/* Handles a due warning: sends queries to the lanes, and logs the reason. */
void stall_warn(struct gp_request *q);
/* Records that a message has arrived: the request is not stalled. */
void stall_end(struct gp_request *q);

#endif
