/* Names that this pool gives to jobs and steps of Slurm, and the lines in which squeue lists them.
 * Pure: no function makes a system call. */
#ifndef GRADPOOL_POOL_SLURM_LIST_H
#define GRADPOOL_POOL_SLURM_LIST_H

#include "svc/pool/cookie.h"
#include "svc/pool/ranks.h"

#define SLURM_NAME_BYTES 80
#define SLURM_ID_BYTES 40
#define SLURM_NODE_BYTES 128
#define SLURM_REASON_BYTES 128

/* Formats for `squeue -h -O`: columns of fixed width, one line for each job or step. */
#define SLURM_FORMAT_JOBS "Name:80,JobID:40,State:32,exit_code:16,NodeList:128,Reason:128"
#define SLURM_FORMAT_STEPS "StepName:80,StepID:40,StepState:32,Nodes:128"

enum slurm_phase {
    SLURM_PENDING,
    SLURM_RUNNING,
    SLURM_ENDING, /* Slurm is ending the processes */
    SLURM_OVER,
};

/* A job or a step, as squeue shows it. */
struct slurm_entry {
    struct cookie cookie; /* of the worker; `pid` is 0 */
    bool is_step;
    char id[SLURM_ID_BYTES];
    enum slurm_phase phase;
    enum rank_end end; /* SLURM_OVER: kind of the end. END_UNKNOWN: Slurm has ended the job */
    int number;
    char state[SLURM_NODE_BYTES];    /* word of Slurm */
    char node[SLURM_NODE_BYTES];     /* "": none yet */
    char reason[SLURM_REASON_BYTES]; /* reason why a job waits; "": none */
};

/* Writes the name of a worker's job or step: "gradpool-POOL-RANK-INCARNATION". */
void slurm_name_write(const struct cookie *cookie, char text[SLURM_NAME_BYTES]);
/* Parses a name. Returns false for any other text. */
bool slurm_name_parse(const char *text, struct cookie *ret_cookie);
/* Parses a line of squeue in one of the formats. Returns false for a line of another job. */
bool slurm_line_parse(const char *line, bool is_step, struct slurm_entry *ret_entry);

#endif
