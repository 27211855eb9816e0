/* A timeline's recording in this worker: rounds go to a ring as they end, and the coordinator
 * fetches them. README: L34. */
#ifndef GRADPOOL_CLIENT_LIB_REPORT_RECORDER_H
#define GRADPOOL_CLIENT_LIB_REPORT_RECORDER_H

#include "client/gradpool.h"
#include "client/lib/session/control.h"
#include "svc/wire/trace_ring.h"

/* The control thread's. */
struct recorder {
    struct trace_ring *ring; /* NULL: no recording, and no rounds to be fetched */
    uint64_t timeline;       /* whose */
    bool is_telling;         /* the call is on its way */
    struct control_call call;
    Gradpool__Wire__TimelineTaken taken;
    Gradpool__Wire__TimelineRounds part, *parts;
    struct trace_round *rounds;
};

/* Answers a request for rounds; the first one of a timeline begins its recording. In the control
 * thread, without the job's lock. */
void recorder_take(struct gp_job *job, const Gradpool__Wire__TimelineTake *take);
/* The tensor's open round is over for its caller. With the lock. */
void recorder_note(const gp_tensor *t);
/* After the control thread has ended. */
void recorder_fini(struct gp_job *job);

#endif
