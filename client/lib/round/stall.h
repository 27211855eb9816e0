/* Why a request is not over, in words. With the job's lock, which is released meanwhile. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_STALL_H
#define GRADPOOL_CLIENT_LIB_ROUND_STALL_H

#include "client/lib/session/control.h"
#include "svc/wire/record.h"

struct gp_request;

/* A question to the coordinator about ranks that are late, and the newest answer (L59). */
struct late {
    struct control_call call;
    Gradpool__Wire__LateRequest request;
    uint64_t ranks[RECORD_MISSING_WORDS];
    bool is_asked; /* the call is under way */
    char text[400];
};

/* After `timeout_ns`: asks the lanes, drives a little longer, and stores the reason as the thread's
 * last error. 0: the request was over after all. */
int stall_explain(struct gp_request *q, uint64_t timeout_ns);
/* When a warning is due, in a wait that begins or goes on; UINT64_MAX: never. */
uint64_t stall_due(struct gp_request *q, uint64_t now_ns);
/* A warning is due: asks the lanes, and logs the reason. */
void stall_warn(struct gp_request *q);
/* Something has come. */
void stall_end(struct gp_request *q);

#endif
