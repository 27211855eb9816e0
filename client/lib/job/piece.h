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
    struct link *link;  /* link to the lane that owns the piece */
    struct link *fence; /* a former lane that must be closed first (W5); NULL: none */
    struct link *lost;  /* the lane that died with the piece, until its next commit; NULL: none */
    struct list unsent; /* in link.unsent while a READY is to be sent */
    uint64_t first, elements;
    uint64_t committed; /* newest committed round of the piece */
    uint32_t id, epoch;
    uint32_t slot, word; /* word: slot and generation, of the last round begun */
    uint32_t kept_word;  /* word of the round of the tensor's `kept` */
    enum piece_standing standing;
    bool is_orphan;     /* the lane is gone, and a RouteChange will follow */
    bool owes_standing; /* a new owner must get READY even if no round is open */
    /* the piece is new to rounds of other ranks: the lane sends the round to enter after (L21) */
    bool is_entering;
    bool keeps_copy;     /* this rank stores a copy of its state, if the job wants that (L28) */
    void *copy;          /* memory for two states, lent to lanes; NULL: none yet */
    uint64_t copy_since; /* the first round whose state goes there; RECORD_ROUND_NONE: an offer */
    uint32_t copy_told;  /* number of the link's opening on which the offer was sent; 0: none */
};

#define for_each_piece(p, t) \
    for (struct piece *p = (t)->pieces; p != (t)->pieces + (t)->pieces_count; p++)
/* Pieces of all tensors of a job; `break` ends the pieces of one tensor only. */
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
/* The same for the round before, while the tensor has it in `kept`. */
struct piece *piece_find_kept(struct gp_job *job, uint32_t word);
/* Drops a READY that was not sent yet. */
void piece_retract(struct piece *p);

#endif
