/* Entry of a late worker into a job with step records. The worker declares and connects first. Other
 * ranks wait for the worker only after its request to enter. README: L99. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_ENTRY_H
#define GRADPOOL_CLIENT_LIB_ROUND_ENTRY_H

#include "client/lib/session/control.h"

struct gp_job;

struct entry {
    struct control_call call;
    Gradpool__Wire__EnterRequest body;
    bool is_asking; /* the call has no reply yet */
};

/* Requests the entry into the rounds of all declared tensors, if this rank is outside of some. Does
 * not wait. Called with the job's lock held. */
void entry_ask(struct gp_job *job);

#endif
