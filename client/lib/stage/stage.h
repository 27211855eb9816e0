/* The stage of a job at this rank (client/gradpool_stage.h). The job's lock protects all fields. */
#ifndef GRADPOOL_CLIENT_LIB_STAGE_STAGE_H
#define GRADPOOL_CLIENT_LIB_STAGE_STAGE_H

#include "client/gradpool_stage.h"
#include "client/lib/job/job_tables.h"
#include "svc/wire/ranks.h"
#include "svc/wire/terms.h"

#define STAGE_TIMES_MAX 24 /* steps whose times are sent to the coordinator */

struct job_stage {
    gp_stage now;                           /* number 0: before the first stage */
    char name[GP_STAGE_NAME_BYTES_MAX + 1]; /* "": all ranks work */
    uint64_t members[RANKS_WORDS];
    uint32_t visits; /* number of stages in which this rank has worked */
    uint64_t first_clock;
    bool has_ended; /* this rank and all other members have ended their parts */
    bool has_asked; /* has requested the next stage, in a call that has not succeeded */
    bool is_busy;   /* a thread is in a call on stages */
    /* values are handed over at this time, over tensors of the library */
    bool is_carrying;
    /* hand-over that has begun and not ended, in the memory behind this struct; NULL: none */
    struct hand_over *hand_over;
    /* Steps of this rank in the stage. */
    uint32_t trial_steps, steps;
    bool is_paused;    /* the trial of the stage has ended */
    uint64_t began_ns; /* beginning of the present step */
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
/* Returns 0, or -EPERM with a text if the tensor is of all ranks, and some ranks are idle. Accepts
 * the library's own tensors, whose pushes are refused. */
int job_stage_check_declare(const struct gp_job *job, const char *name, const struct terms *terms);
/* Returns 0, or -EPERM with a text: this rank is idle, or a rank of a tensor with a set of its own,
 * or the ranks of the tensor are not the members of the stage. */
int job_stage_check_tensor(const struct gp_tensor *t);

#endif
