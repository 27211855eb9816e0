/* A snapshot in progress. Private to snapshot.c, align.c, answer.c and read.c. */
#ifndef GRADPOOL_COORDINATOR_SNAPSHOT_INTERNAL_H
#define GRADPOOL_COORDINATOR_SNAPSHOT_INTERNAL_H

#include "svc/coordinator/service.h"
#include "svc/coordinator/snapshot/snapshot.h"

enum saving_state {
    SAVING_WAITS,  /* another operation on the job has to end first */
    SAVING_HOLDS,  /* a rank was requested to stop at the end of its iteration */
    SAVING_RESTS,  /* lanes were requested to release the pieces */
    SAVING_STANDS, /* all lanes have released their pieces, which are being read */
    SAVING_BROKEN, /* the job continues; the caller has not received the error yet */
};

/* A released piece. The struct has the number of the piece instead of a pointer, because the piece
 * may be freed at any time. */
struct saved_piece {
    uint32_t piece, lane;
    uint64_t first, elements;
    /* steps: number of updates plus one; 0: the piece has no parameters */
    uint64_t round, state_bytes, steps;
};

struct saved_tensor {
    uint32_t tensor;
    /* arrays: one for the parameters, and one for each moment */
    uint64_t elements, arrays;
    size_t first, count; /* range in sv->pieces */
};

/* Position of the next read. */
struct saving_cursor {
    size_t tensor, piece; /* piece: index in sv->pieces */
    uint64_t array, element;
};

struct saving {
    struct list link; /* node in works.savings */
    struct service *service;
    struct peer *peer;
    /* request: open request of the caller, answered when the pieces are released or a batch was
     * read; 0: none. */
    uint64_t id, request;
    uint32_t job;
    enum saving_state state;
    bool are_released; /* requests to release were sent */
    /* The caller is a rank of the job and is at the end of an iteration. */
    bool is_between;
    bool is_recovering; /* a lane is still recovering the state of a piece */
    uint32_t turn;    /* number of the last group of calls; answers to earlier groups are ignored */
    uint32_t pending; /* number of unanswered calls of this group */
    uint64_t patience_ns, stood_ns;
    /* timer of the next attempt, or of the deadline for the caller's next request */
    struct timer timer;
    /* Numbers of the requested tensors, ascending; NULL: all tensors with an update rule. */
    uint32_t *wanted;
    size_t wanted_count;
    struct saved_tensor *tensors;
    size_t tensors_count;
    struct saved_piece *pieces;
    size_t pieces_count;
    struct saving_cursor cursor;
    struct saving_batch *batch; /* parts that are being read; NULL: none */
    struct err why;             /* error, in state SAVING_BROKEN */
};

/* --- answer.c --- */

/* Answers `sv->request` with the list of tensors. Returns 0, -EMSGSIZE, -ENOMEM, or -EAGAIN if a
 * tensor was undeclared. */
int saving_answer(struct saving *sv, const struct job *job);

/* --- snapshot.c --- */

/* Returns the job's snapshot; NULL: the job has none, or the snapshot has failed. */
struct saving *saving_of(const struct job *job);
/* Lists the indexes of the lane's pieces that still exist. */
size_t saving_gather(const struct saving *sv, const struct job *job, uint32_t lane,
                     uint32_t *ret_at);
/* Resumes the job: lanes serve the released pieces, and the held rank continues. */
void saving_let_go_on(struct saving *sv);
void saving_free(struct saving *sv);
struct saving *saving_find(struct service *s, uint64_t id);
/* Breaks the snapshot and resumes the job. The caller receives the error now or with its next
 * request. `sv` may be freed on return. */
void saving_break(struct saving *sv, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Breaks the snapshot if the job has been stopped for STANDS_NS. Returns true if `sv` was answered
 * and freed. */
bool saving_takes_long(struct saving *sv);
/* Starts the timer that limits the time until the caller's next request. */
void saving_await(struct saving *sv);

/* --- align.c --- */

/* Begins a snapshot that is in the list. The snapshot may be freed on return. */
void saving_begin(struct saving *sv);
/* Begins the snapshot again if the obstacle may be temporary and time is left. Otherwise breaks the
 * snapshot. */
void saving_hindered(struct saving *sv, const struct err *why);

/* --- read.c --- */

/* Reads the next batch and answers `sv->request` with it. */
void saving_read(struct saving *sv);
void saving_forget_batch(struct saving *sv);

#endif
