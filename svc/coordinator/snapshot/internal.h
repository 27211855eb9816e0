/* One snapshot under way: what snapshot.c (its life) and read.c (what is read) share. Nobody
 * else includes this. */
#ifndef GRADPOOL_COORDINATOR_SNAPSHOT_INTERNAL_H
#define GRADPOOL_COORDINATOR_SNAPSHOT_INTERNAL_H

#include "svc/coordinator/service.h"
#include "svc/coordinator/snapshot/snapshot.h"

enum saving_state {
    SAVING_WAITS,  /* the job has something else to do first */
    SAVING_HOLDS,  /* one of its ranks comes to the end of an iteration, and no further */
    SAVING_RESTS,  /* lanes let go of its pieces */
    SAVING_STANDS, /* all have, and are read */
    SAVING_BROKEN, /* the job trains on; who asked is still to hear why */
};

/* By number: the piece itself may be gone at any time. As its lane has released it. */
struct saved_piece {
    uint32_t piece, lane;
    uint64_t first, elements;
    uint64_t round, state_bytes, steps; /* steps: and one */
};

struct saved_tensor {
    uint32_t tensor;
    uint64_t elements, arrays; /* parameters and moments */
    size_t first, count;       /* of the pieces, which ascend */
};

/* What is read next. */
struct saving_cursor {
    size_t tensor, piece; /* piece: of all */
    uint64_t array, element;
};

struct saving {
    struct list link; /* in works.savings */
    struct service *service;
    struct peer *peer;
    uint64_t id,
        request; /* request: the one that is answered when all stands, or is read; 0: none */
    uint32_t job;
    enum saving_state state;
    bool are_released;  /* lanes know of it */
    bool is_between;    /* a rank of the job asks, which stands at the end of an iteration */
    bool is_recovering; /* a lane has yet to hear what it keeps */
    uint32_t turn;      /* of asking; answers of former ones are passed over */
    uint32_t pending;   /* answers of this turn */
    uint64_t patience_ns, stood_ns;
    struct timer timer; /* to try again, or because who asked is silent */
    uint32_t *wanted;   /* numbers of tensors, which ascend; NULL: all that have a rule */
    size_t wanted_count;
    struct saved_tensor *tensors;
    size_t tensors_count;
    struct saved_piece *pieces;
    size_t pieces_count;
    struct saving_cursor cursor;
    struct saving_batch *batch; /* NULL: nothing is being read */
    struct err why;             /* it is broken */
};

/* --- answer.c --- */

/* Answers `sv->request`: all stands still. -EMSGSIZE, -ENOMEM, -EAGAIN: a tensor is gone. */
int saving_answer(struct saving *sv, const struct job *job);

/* --- snapshot.c --- */

/* Of those that are not broken the first. */
struct saving *saving_of(const struct job *job);
/* Indexes of those of a lane that still are. */
size_t saving_gather(const struct saving *sv, const struct job *job, uint32_t lane,
                     uint32_t *ret_at);
/* Lanes serve again what they had let go of, and nobody is held. */
void saving_let_go_on(struct saving *sv);
void saving_free(struct saving *sv);
struct saving *saving_find(struct service *s, uint64_t id);
/* The job trains on. Who asked is told now, or when it asks next; `sv` may be gone afterwards. */
void saving_break(struct saving *sv, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* It stands still for longer than a job can bear: who asked was told, and it is gone. */
bool saving_takes_long(struct saving *sv);
/* From now on it may be silent for so long. */
void saving_await(struct saving *sv);

/* --- align.c --- */

/* One that is in the service's list; it may be gone afterwards. */
void saving_begin(struct saving *sv);
/* From the beginning once more where that may help and there is patience; else it is broken. */
void saving_hindered(struct saving *sv, const struct err *why);

/* --- read.c --- */

/* Answers `sv->request` with what comes next. */
void saving_read(struct saving *sv);
void saving_forget_batch(struct saving *sv);

#endif
