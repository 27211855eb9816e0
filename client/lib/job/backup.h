/* Rounds of a job with backup workers (W22), as one worker knows them. round/round_end.c owns the
 * state; the job's lock protects it, except `passed`. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_BACKUP_H
#define GRADPOOL_CLIENT_LIB_JOB_BACKUP_H

#include <stdbool.h>
#include <stdint.h>

struct gp_request;
struct gp_tensor;

enum backup_phase {
    BACKUP_OPEN,      /* the round's gradients are pushed, and the round may not be ended yet */
    BACKUP_ANNOUNCED, /* the leader lane has the announcement of the hidden tensor */
    BACKUP_LANDING,   /* this rank is in the set, and waits for results */
    BACKUP_TAKING,    /* this rank is not in the set, and fetches a result of every tensor */
};

struct backup_rounds {
    bool is_on;
    uint32_t count; /* gradients that close a round */
    enum backup_phase phase;
    struct gp_tensor *leader;   /* the hidden tensor; NULL: not declared yet */
    struct gp_request *request; /* announcement of the hidden tensor; NULL: none is open */
    uint64_t held;              /* newest round of the job whose results this rank has */
    uint64_t taking;            /* TAKING: round whose results are being fetched */
    uint64_t newest;            /* newest closed round that a lane has named in an answer */
    _Atomic uint64_t passed;    /* newest closed round that this rank lacks; 0: none */
};

#endif
