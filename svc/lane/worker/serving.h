/* Answers to late ranks: to takers (W22), and to ranks outside the set of a piece that stores its
 * newest result (A16). A worker receives one answer at a time, chunk by chunk. A chunk for unmapped
 * memory is first copied to the slot of the worker. A stopped worker therefore blocks only its own
 * slot, and delays no round. RULES.md: A16, A86, A88. */
#ifndef GRADPOOL_LANE_WORKER_SERVING_H
#define GRADPOOL_LANE_WORKER_SERVING_H

#include "svc/lane/types.h"

/* The answers to one worker. */
struct serving {
    struct list ready; /* node in servings.ready while the lane can continue the answers */
    struct list takes; /* late announcements that wait for their results */
    struct rank *rank; /* rank that is served now; NULL: none */
    uint64_t round;    /* round whose result the rank receives */
    /* stored result that the rank receives (A16); NULL: the rank is a taker, and the lane finds the
     * result again before each chunk */
    const char *result;
    uint64_t next;         /* first element that is still to be written */
    bool is_last;          /* all chunks and the completion word are written or posted */
    bool is_posted;        /* a write of the slot or of the completion word is not complete */
    struct piece *piece;   /* piece of `rank`; NULL: the piece was freed */
    uint64_t moved_ns;     /* time of the last begin, post or completion */
    struct fabric *fabric; /* fabric with which the slot is registered */
    char *slot;            /* NULL: the worker's memory is mapped */
};

/* The answers of a job. */
struct servings {
    struct list ready;
    bool is_next; /* the next turn of the job continues an answer, not a round */
    struct serving of[];
};

/* Creates the answers of a job, unless they exist already. Returns 0 or -ENOMEM. */
int servings_create(struct lane_job *job);
void servings_free(struct lane_job *job);
/* Allocates the slot of a worker that connects over this fabric, if one is needed. Returns 0, or an
 * error of arena_lack(). After an error the job has failed. */
int serving_open(struct worker *w, struct fabric *fabric);
size_t serving_slot_bytes(const struct lane_job *job);

/* Adds an answer to the rank, unless this answer exists already. The rank waits for the result of
 * rank->late, which is committed on this lane. */
void serving_add(struct rank *rank);
/* If the lane can continue the answers to the worker, adds them to the list of ready answers, and
 * returns true. The caller wakes the job. */
bool serving_list(struct serving *s, const struct worker *w);
/* Ends the answers to the worker. A chunk that is already posted is still written; the worker
 * receives no further result. */
void serving_end(struct serving *s);
/* Ends the answer to a rank whose announcement has failed or is no longer valid. */
void serving_forget(struct rank *rank);
void servings_forget_piece(struct piece *p);
/* Returns whether a write of the piece's values is not complete. A new owner must not write to the
 * same memory before this write is complete. `ret_rank` may be NULL. */
bool serving_writes(const struct piece *p, const struct rank **ret_rank, uint64_t *ret_since_ns);
bool servings_are_posted(const struct lane_job *job);
/* Ends all answers, because the fabrics are closed and no completion event will follow. */
void servings_abandon(struct lane_job *job);

#endif
