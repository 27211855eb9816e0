/* Takers (W22), as a lane serves them: one at a time for each worker, chunk by chunk, between
 * rounds. A chunk for unmapped memory is first copied to the worker's slot. So a stopped worker
 * blocks its own slot, and neither a state nor a round. RULES.md: A86, A88. */
#ifndef GRADPOOL_LANE_WORKER_SERVING_H
#define GRADPOOL_LANE_WORKER_SERVING_H

#include "svc/lane/types.h"

/* The answers to one worker. */
struct serving {
    struct list ready;     /* node in servings.ready while the lane can go on with the answers */
    struct list takes;     /* announcements (TAKES) that wait for their results */
    struct rank *rank;     /* taker that is served now; NULL: none */
    uint64_t next;         /* first element that is still to be written */
    bool is_last;          /* everything is written or posted, the word included */
    bool is_posted;        /* a write of the slot, or the word, is not complete */
    struct piece *piece;   /* piece of that taker; NULL: the piece was freed */
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

/* Creates the servings of a job, which needs them if one of its pieces follows the job's sets. Has
 * no effect if the job has them. Returns 0 or -ENOMEM. */
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
/* Ends the answer to a taker whose announcement has failed or is no longer valid. */
void serving_forget(struct rank *rank);
void servings_forget_piece(struct piece *p);
/* Returns whether a write of the piece's values is not complete. A new owner must not write to the
 * same memory before. `ret_rank` may be NULL. */
bool serving_writes(const struct piece *p, const struct rank **ret_rank, uint64_t *ret_since_ns);
bool servings_are_posted(const struct lane_job *job);
/* The fabrics are closed: no completion follows. */
void servings_abandon(struct lane_job *job);

#endif
