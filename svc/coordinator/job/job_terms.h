/* Terms of a job, requested by its first worker. A part of job.h. */
#ifndef GRADPOOL_COORDINATOR_JOB_TERMS_H
#define GRADPOOL_COORDINATOR_JOB_TERMS_H

#include "svc/wire/backup_terms.h"
#include "svc/wire/durability.h"

#include <stdbool.h>
#include <stdint.h>

/* Terms of a job, from its first worker or from the operator of a dry run. */
struct job_terms {
    bool continues;  /* the job continues after the loss of workers */
    bool is_elastic; /* ranks may join and leave */
    /* UNSAID: unknown, because no worker has joined since the restart */
    enum durability durability;
    /* loss limit that the job's workers requested, in millionths; 0: none */
    uint32_t loss_limit_ppm;
    uint32_t lane_wait_ms, answer_ms; /* timeouts from the job's workers; 0: unknown */
    /* terms of backup workers; all 0: every round waits for all ranks */
    struct backup_terms backup;
    uint32_t layout;   /* profiles_layout() of the first declare; 0: no declare yet */
    bool is_trial;     /* the job is a dry run: no lane opens, and no process starts */
    bool is_operators; /* an operator has requested the dry run */
};

#endif
