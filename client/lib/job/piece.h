/* Pieces of tensors, and the words with which lanes refer to the open round of a piece. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_PIECE_H
#define GRADPOOL_CLIENT_LIB_JOB_PIECE_H

#include "client/lib/job/tensor.h"

#define PIECES_MAX (1u << 24) /* maximum number of pieces in a job: 24 bits of a word */

/* State of a piece in the round of its tensor (W2, W5). */
enum piece_standing {
    PIECE_IDLE,      /* the last round is committed; no memory is lent */
    PIECE_ANNOUNCED, /* the input is lent; the lane has the record or is about to get it */
    /* the result has arrived, but other ranks may not have it: input and landing area are lent */
    PIECE_LANDED,
};

struct piece {
    struct gp_tensor *tensor;
    struct link *link;  /* link to the lane that owns the piece */
    struct link *fence; /* link to a former lane that must be closed first (W5); NULL: none */
    /* the lane that died with the piece, until the piece's next commit; NULL: none */
    struct link *lost;
    struct list unsent; /* node in link.unsent while a READY has to be sent */
    uint64_t first, elements;
    uint64_t committed; /* newest committed round of the piece */
    uint32_t id, epoch;
    uint32_t slot, word; /* word: slot and generation of the last round that began */
    uint32_t kept_word;  /* word of the round in the tensor's `kept` */
    enum piece_standing standing;
    bool is_orphan;     /* the lane is gone, and a RouteChange will follow */
    bool owes_standing; /* a new owner must get a READY even if no round is open */
    /* the piece is new to the rounds of other ranks: the lane sends the round after which it enters
     * (L21) */
    bool is_entering;
    /* this rank stores a copy of the piece's state, if the job has such copies (L28) */
    bool keeps_copy;
    void *copy; /* memory for two states, lent to lanes; NULL: not allocated yet */
    /* first round whose state is written there; RECORD_ROUND_NONE: only offered */
    uint64_t copy_since;
    uint32_t
        copy_told; /* count of openings of the link when the copy was offered; 0: never offered */
};

#define for_each_piece(p, t) \
    for (struct piece *p = (t)->pieces; p != (t)->pieces + (t)->pieces_count; p++)
/* Visits the pieces of all tensors of a job. `break` ends the pieces of one tensor only. */
#define for_each_piece_in(p, job)     \
    for_each_tensor (p##_tensor, job) \
        for_each_piece (p, p##_tensor)

struct slot {
    struct piece *piece; /* NULL: the slot is free */
    uint32_t next_free;
    uint8_t generation;
};

/* Gives the piece a slot, which it keeps. -ENOMEM, -ENOSPC. */
int piece_take_slot(struct piece *p);
void piece_give_slot_back(struct piece *p);
/* Creates the word for the round that the piece begins. */
void piece_new_word(struct piece *p);
/* Finds the piece to whose open round the word refers. NULL: there is none any more. */
struct piece *piece_find(struct gp_job *job, uint32_t word);
/* Finds the piece to whose previous round the word refers, while the tensor has that round in
 * `kept`. */
struct piece *piece_find_kept(struct gp_job *job, uint32_t word);
/* Drops a READY that was not sent yet. */
void piece_retract(struct piece *p);

#endif
