/* Pieces of tensors, and words: the numbers with which lanes name the open round of a piece. */
#ifndef GRADPOOL_CLIENT_LIB_JOB_PIECE_H
#define GRADPOOL_CLIENT_LIB_JOB_PIECE_H

#include "client/lib/job/tensor.h"

/* Maximum number of pieces in a job. A word has 23 bits for the slot; its highest bit marks the
 * words of tables (EXCHANGE_WORD). */
#define PIECES_MAX (1u << 23)

/* State of a piece in the round of its tensor (W2, W5). */
enum piece_standing {
    PIECE_IDLE,      /* the last round is committed; no memory is lent */
    PIECE_ANNOUNCED, /* the input is lent; the lane has the record, or gets it soon */
    /* the result has arrived; input and landing area stay lent, because other ranks may lack the
     * result */
    PIECE_LANDED,
};

struct piece {
    struct gp_tensor *tensor;
    struct link *link; /* link to the lane that owns the piece */
    /* former lane whose connection must close before `link` gets a READY (W5); NULL: none */
    struct link *fence;
    /* lane that was lost while it owned the piece; NULL: no lane was lost, or a later round is
     * committed */
    struct link *lost;
    struct list unsent; /* node in link.unsent while a READY is to be sent */
    uint64_t first, elements;
    uint64_t committed; /* newest committed round of the piece */
    uint32_t id, epoch;
    uint32_t slot, word; /* word: slot and generation of the last round that began */
    uint32_t kept_word;  /* word of the tensor's previous round `kept` */
    enum piece_standing standing;
    bool is_orphan; /* the lane is lost, and a RouteChange will follow */
    /* the owner has not received the standing of this rank yet, and needs a READY even without an
     * open round */
    bool owes_standing;
    /* the lane still has to send the number of the last round to this late worker (L21) */
    bool is_entering;
    /* the lane does not know this late worker yet, or this rank is idle in the present stage; the
     * lane gets no READY (L99) */
    bool is_outside;
    /* this rank stores the copy of the piece's state, if the job has such copies (L28) */
    bool keeps_copy;
    void *copy; /* memory for two states, lent to lanes; NULL: not allocated */
    /* first round whose state is in the copy; RECORD_ROUND_NONE: the copy was only offered */
    uint64_t copy_since;
    /* value of link.openings when the copy was last offered to the lane; 0: never */
    uint32_t copy_told;
};

#define for_each_piece(p, t) \
    for (struct piece *p = (t)->pieces; p != (t)->pieces + (t)->pieces_count; p++)
/* Visits the pieces of all tensors of a job. `break` skips the remaining pieces of one tensor, and
 * the loop continues with the next tensor. */
#define for_each_piece_in(p, job)     \
    for_each_tensor (p##_tensor, job) \
        for_each_piece (p, p##_tensor)

struct slot {
    struct piece *piece; /* NULL: the slot is free */
    uint32_t next_free;
    uint8_t generation;
};

/* Assigns a slot to the piece until piece_give_slot_back(). -ENOMEM; -ENOSPC: the job has
 * PIECES_MAX pieces. */
int piece_take_slot(struct piece *p);
void piece_give_slot_back(struct piece *p);
/* Creates the word of the piece's next round. */
void piece_new_word(struct piece *p);
/* Finds the piece whose open round has this word, or NULL. */
struct piece *piece_find(struct gp_job *job, uint32_t word);
/* Finds the piece whose previous round, the tensor's `kept`, has this word, or NULL. */
struct piece *piece_find_kept(struct gp_job *job, uint32_t word);
/* Drops a READY that was not sent yet. */
void piece_retract(struct piece *p);

#endif
