/* Knowledge of the coordinator about ranks that are late (L59). */
#ifndef GRADPOOL_CLIENT_LATE_H
#define GRADPOOL_CLIENT_LATE_H

#include "client/control.h"
#include "svc/wire/record.h"

struct gp_request;

/* A question about late ranks, and the newest answer (L59). */
struct late {
    struct control_call call;
    Gradpool__Wire__LateRequest request;
    uint64_t ranks[RECORD_MISSING_WORDS];
    bool is_asked; /* the call is under way */
    char text[400];
};

/* Of the ranks that `q->missing` names, into `late.text` of their job; empty: nothing came in time.
 * With the job's lock, which is released meanwhile. */
void late_ask(struct gp_request *q);

#endif
