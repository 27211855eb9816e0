/* The recording of a timeline in this worker. A round is stored in a ring when the round ends, and
 * the coordinator requests the stored rounds. README: L34. */
#ifndef GRADPOOL_CLIENT_LIB_REPORT_RECORDER_H
#define GRADPOOL_CLIENT_LIB_REPORT_RECORDER_H

#include "client/gradpool.h"
#include "client/lib/session/control.h"
#include "svc/wire/trace_ring.h"

/* State of the recording, for the control thread. */
struct recorder {
    struct trace_ring *ring; /* NULL: no recording, and no stored rounds */
    uint64_t timeline;       /* number of the timeline */
    bool is_telling;         /* a call with rounds has no reply yet */
    struct control_call call;
    Gradpool__Wire__TimelineTaken taken;
    Gradpool__Wire__TimelineRounds part, *parts;
    struct trace_round *rounds;
};

/* Answers a request for rounds. The first request of a timeline starts its recording. Called in the
 * control thread, without the job's lock. */
void recorder_take(struct gp_job *job, const Gradpool__Wire__TimelineTake *take);
/* Records the round of a tensor when it is over for the caller. Called with the lock held. */
void recorder_note(const gp_tensor *t);
/* Frees the recording, after the control thread has ended. */
void recorder_fini(struct gp_job *job);

#endif
