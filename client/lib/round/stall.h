/* Stalls: the reason, as a text, why a request is not over. Functions of this header are called
 * with the job's lock held, and release the lock while they wait or log. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_STALL_H
#define GRADPOOL_CLIENT_LIB_ROUND_STALL_H

#include "client/lib/session/control.h"
#include "svc/wire/record.h"

struct gp_request;

/* A query to the coordinator about late ranks, and the newest answer (L59). */
struct late {
    struct control_call call;
    Gradpool__Wire__LateRequest request;
    uint64_t ranks[RECORD_MISSING_WORDS];
    bool is_asked; /* the call has no reply yet */
    char text[400];
};

/* Finds the reason why a request is not over after `timeout_ns`: sends queries to lanes and
 * coordinator, and drives the engine until the answers have arrived or are late. Stores the reason
 * as the thread's last error. Returns -ETIMEDOUT, -EDQUOT (row_stall_lacks()), or 0 if the request
 * is over after all, or has a result to copy. */
int stall_explain(struct gp_request *q, uint64_t timeout_ns);
/* Returns the time at which a warning is due in the wait of a request; UINT64_MAX: warnings are
 * off. The first call begins the wait. */
uint64_t stall_due(struct gp_request *q, uint64_t now_ns);
/* Handles a due warning: sends queries to the lanes, and logs the reason. */
void stall_warn(struct gp_request *q);
/* Ends the stall of a request with news, and logs the end if a warning was logged. */
void stall_end(struct gp_request *q);

#endif
