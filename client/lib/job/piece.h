/* Pieces of tensors, and the words by which lanes name a piece's open round. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_PIECE_H
#define GRADPOOL_CLIENT_LIB_JOB_PIECE_H

#include "client/lib/job/tensor.h"

#define PIECES_MAX (1u << 24) /* pieces of a job: 24 bits of a word */

/* State of a piece in its tensor's round (W2, W5). */
enum piece_standing {
    PIECE_IDLE,      /* the last round is committed; no memory is lent */
    PIECE_ANNOUNCED, /* the input is lent; the lane knows, or will once the record is sent */
    PIECE_LANDED,    /* the result is here, others may lack it: input and landing area are lent */
};

struct piece {
    struct gp_tensor *tensor;
    struct link *link;  /* to the lane that owns the piece */
    struct link *fence; /* a former lane that must be closed first (W5); NULL: none */
    struct link *lost;  /* the lane that died with the piece, until its next commit; NULL: none */
    struct list unsent; /* in link.unsent while a READY is to be sent */
    uint64_t first, elements;
    uint64_t committed; /* the last round that is */
    uint32_t id, epoch;
    uint32_t slot, word; /* word: slot and generation, of the last round begun */
    uint32_t kept_word;  /* of the tensor's `kept` */
    enum piece_standing standing;
    bool is_orphan;      /* its lane is gone; a RouteChange will come */
    bool owes_standing;  /* a new owner must get READY even if no round is open */
    bool is_entering;    /* new to rounds of others: the lane is to say where they stand (L21) */
    bool keeps_copy;     /* this rank stores a copy of its state, if the job wants that (L28) */
    void *copy;          /* two states, in lent memory; NULL: none yet */
    uint64_t copy_since; /* the first round whose state goes there; RECORD_ROUND_NONE: an offer */
    uint32_t copy_told;  /* on which opening of its link the lane heard of it; 0: on none */
};

#define for_each_piece(p, t) \
    for (struct piece *p = (t)->pieces; p != (t)->pieces + (t)->pieces_count; p++)
/* Of all tensors of a job; `break` ends the pieces of one. */
#define for_each_piece_in(p, job)     \
    for_each_tensor (p##_tensor, job) \
        for_each_piece (p, p##_tensor)

struct slot {
    struct piece *piece; /* NULL: free */
    uint32_t next_free;
    uint8_t generation;
};

/* Gives the piece a slot for life. -ENOMEM, -ENOSPC. */
int piece_take_slot(struct piece *p);
void piece_give_slot_back(struct piece *p);
/* Names the round that the piece begins. */
void piece_new_word(struct piece *p);
/* The piece whose open round the word names; NULL: none any more. */
struct piece *piece_find(struct gp_job *job, uint32_t word);
/* Likewise of the round before, while that is kept. */
struct piece *piece_find_kept(struct gp_job *job, uint32_t word);
/* Drops a READY that was not sent yet. */
void piece_retract(struct piece *p);

#endif
