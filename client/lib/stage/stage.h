/* The stage of a job at this rank (client/gradpool_stage.h). The job's lock protects all fields. */
#ifndef GRADPOOL_CLIENT_LIB_STAGE_STAGE_H
#define GRADPOOL_CLIENT_LIB_STAGE_STAGE_H

#include "client/gradpool_stage.h"
#include "client/lib/job/job_tables.h"
#include "svc/wire/ranks.h"

#define STAGE_TIMES_MAX 24 /* steps whose times are sent to the coordinator */

struct job_stage {
    gp_stage now;                           /* number 0: before the first stage */
    char name[GP_STAGE_NAME_BYTES_MAX + 1]; /* "": all ranks work */
    uint64_t members[RANKS_WORDS];
    uint32_t visits; /* stages in which this rank has worked */
    uint64_t first_clock;
    bool has_ended;              /* this rank has ended its part, and all other members have */
    bool is_busy;                /* a thread is in a call on stages */
    bool is_carrying;            /* values are handed over, over tensors of the library */
    struct hand_over *hand_over; /* begun and not over, in the memory behind this struct; or NULL */
    /* Steps of this rank in the stage. */
    uint32_t trial_steps, steps;
    bool is_paused;    /* the trial is over */
    uint64_t began_ns; /* of the present step */
    uint64_t unit_ps[STAGE_TIMES_MAX];
    size_t times_count;
};

/* Returns the stage of the job; NULL: no call on stages was made. */
struct job_stage *job_stage_of(const struct gp_job *job);
/* Returns whether the rank is a member and has not ended its part, or no stage is open. */
bool job_stage_is_active(const struct gp_job *job);
/* Returns 0, or -EPERM with a text if this rank is idle or has ended its part. `call`: name of the
 * refused call. */
int job_stage_check(const struct gp_job *job, const char *call);
/* Returns 0, or -EPERM with a text that names a rank of the tensor outside the stage. */
int job_stage_check_tensor(const struct gp_tensor *t);

#endif
