/* Ranks that take results (W22), as a lane serves them: one at a time for each worker, chunk by
 * chunk, beside the rounds. A chunk for memory that is not mapped is copied to the worker's slot
 * first, so a stopped worker keeps its slot busy, and no state and no round. RULES.md: A86, A88. */
#ifndef GRADPOOL_LANE_WORKER_SERVING_H
#define GRADPOOL_LANE_WORKER_SERVING_H

#include "svc/lane/types.h"

/* The answers to one worker. */
struct serving {
    struct list ready;     /* node in servings.ready while the lane can go on with the answers */
    struct list takes;     /* announcements that wait for their results */
    struct rank *rank;     /* the rank whose announcement is being answered; NULL: none */
    uint64_t next;         /* first element that was not written yet */
    bool is_last;          /* everything is written or posted, the word included */
    bool is_posted;        /* a write of the slot, or the word, is not complete */
    struct piece *piece;   /* its piece; NULL: freed */
    uint64_t posted_ns;    /* time of the post */
    struct fabric *fabric; /* with which the slot is registered */
    char *slot;            /* NULL: the worker's memory is mapped */
};

/* The answers of a job. */
struct servings {
    struct list ready;
    bool is_next; /* the next turn of the job goes on with an answer, not with a round */
    struct serving of[];
};

/* Creates the servings of a job with a piece that follows its sets, unless the job has them.
 * Returns 0 or -ENOMEM. */
int servings_create(struct lane_job *job);
void servings_free(struct lane_job *job);
/* Allocates the slot of a worker that connects over this fabric, if one is needed. Returns 0, or an
 * error of arena_lack(); the job has failed then. */
int serving_open(struct worker *w, struct fabric *fabric);
size_t serving_slot_bytes(const struct lane_job *job);

/* The rank waits for the result of rank->late, which is committed here. */
void serving_add(struct rank *rank);
/* Lists the worker's answers as ready if the lane can go on with them, and returns whether it can.
 * The caller wakes the job. */
bool serving_list(struct serving *s, const struct worker *w);
/* Drops the answer to a rank whose announcement is void, or has failed. */
void serving_forget(struct rank *rank);
void servings_forget_piece(struct piece *p);
/* Returns whether a write of the piece's values is not complete. A new owner must not write to the
 * same memory before. `ret_rank` may be NULL. */
bool serving_writes(const struct piece *p, const struct rank **ret_rank, uint64_t *ret_since_ns);
bool servings_are_posted(const struct lane_job *job);
/* The fabrics are closed: no completion follows. */
void servings_abandon(struct lane_job *job);

#endif
