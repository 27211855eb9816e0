/* One snapshot under way: state of snapshot.c, align.c, answer.c and read.c, for this room only. */
#ifndef GRADPOOL_COORDINATOR_SNAPSHOT_INTERNAL_H
#define GRADPOOL_COORDINATOR_SNAPSHOT_INTERNAL_H

#include "svc/coordinator/service.h"
#include "svc/coordinator/snapshot/snapshot.h"

enum saving_state {
    SAVING_WAITS,  /* another operation on the job comes first */
    SAVING_HOLDS,  /* a rank is requested to stop at the end of its iteration */
    SAVING_RESTS,  /* lanes have the requests to release the pieces */
    SAVING_STANDS, /* all lanes have released, and are read */
    SAVING_BROKEN, /* the job trains on; the caller has yet to learn why */
};

/* A released piece, by number: the piece may be gone at any time. */
struct saved_piece {
    uint32_t piece, lane;
    uint64_t first, elements;
    uint64_t round, state_bytes, steps; /* steps: plus one; 0: no parameters */
};

struct saved_tensor {
    uint32_t tensor;
    uint64_t elements, arrays; /* 1 for the parameters, and one for each moment */
    size_t first, count;       /* range of sv->pieces */
};

/* Position of the next read. */
struct saving_cursor {
    size_t tensor, piece; /* piece: index of sv->pieces */
    uint64_t array, element;
};

struct saving {
    struct list link; /* node of works.savings */
    struct service *service;
    struct peer *peer;
    /* request: its answer follows when the lanes stand still, or a batch is read; 0: none. */
    uint64_t id, request;
    uint32_t job;
    enum saving_state state;
    bool are_released; /* releases have been sent */
    /* The caller is a rank of the job that stands at the end of an iteration itself. */
    bool is_between;
    bool is_recovering; /* some lane still recovers the state of a piece */
    uint32_t turn;      /* number of the last group of calls; answers to older groups are dropped */
    uint32_t pending;   /* unanswered calls of this turn */
    uint64_t patience_ns, stood_ns;
    struct timer timer; /* next try, or end of the caller's silence */
    /* Ascending tensor numbers; NULL: all tensors with a rule. */
    uint32_t *wanted;
    size_t wanted_count;
    struct saved_tensor *tensors;
    size_t tensors_count;
    struct saved_piece *pieces;
    size_t pieces_count;
    struct saving_cursor cursor;
    struct saving_batch *batch; /* parts being read; NULL: none */
    struct err why;             /* reason of SAVING_BROKEN */
};

/* --- answer.c --- */

/* Answers `sv->request` with the tensors. -EMSGSIZE, -ENOMEM, -EAGAIN: a tensor is gone. */
int saving_answer(struct saving *sv, const struct job *job);

/* --- snapshot.c --- */

/* The job's snapshot that is not broken; NULL: none. */
struct saving *saving_of(const struct job *job);
/* Indexes of the pieces of a lane that still exist. */
size_t saving_gather(const struct saving *sv, const struct job *job, uint32_t lane,
                     uint32_t *ret_at);
/* Lets the job train on: lanes serve the released pieces, and the held rank continues. */
void saving_let_go_on(struct saving *sv);
void saving_free(struct saving *sv);
struct saving *saving_find(struct service *s, uint64_t id);
/* Breaks the snapshot; the job trains on. The caller gets the reason now, or with its next request;
 * `sv` may be freed on return. */
void saving_break(struct saving *sv, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Breaks the snapshot if the job has stood still for STANDS_NS. True: `sv` has been answered and
 * freed. */
bool saving_takes_long(struct saving *sv);
/* Starts the timer of the caller's silence. */
void saving_await(struct saving *sv);

/* --- align.c --- */

/* Begins a listed snapshot; it may be freed on return. */
void saving_begin(struct saving *sv);
/* Begins again if the obstacle may pass and time is left; else breaks the snapshot. */
void saving_hindered(struct saving *sv, const struct err *why);

/* --- read.c --- */

/* Reads the next batch, which answers `sv->request`. */
void saving_read(struct saving *sv);
void saving_forget_batch(struct saving *sv);

#endif
