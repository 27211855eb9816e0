/* Parameters, moments and settings of pieces with an update rule (A19), and where their copy lies
 * (A31, A49). */
#ifndef GRADPOOL_LANE_STATE_PARAMETERS_H
#define GRADPOOL_LANE_STATE_PARAMETERS_H

#include "svc/lane/types.h"

struct transfer;

/* The copy of a piece's state in other memory (A31). Two halves take turns: states after even and
 * after odd rounds. */
struct replica {
    struct worker *worker; /* worker or replica holder whose memory has the copy; NULL: no copy */
    uint32_t region;       /* region of the holder's memory */
    bool is_known; /* the fabrics know the memory of the state, from which the copy is written */
    uint64_t offset[2]; /* places of the halves, by the last bit of the round */
    uint64_t since; /* first round whose state was written here; RECORD_ROUND_NONE: none so far */
    uint64_t steps[3]; /* update counts of the states, by the round modulo 3 */
    /* replica holder, from its offer: rounds whose states lie whole in the halves (A49); 0: none */
    uint64_t rounds[2];
    uint64_t ranks[2]; /* hashes of the ranks that made those rounds */
    /* the round in progress is written to this copy: decided when the round starts */
    bool is_taken;
    /* written behind a half at a replica holder: this state is whole */
    struct record_stamp stamp[2];
    struct record_stamp none; /* zeros, written there first: this half has no whole state */
    uint32_t piece;           /* the piece's number */
    uint32_t note;            /* the holder's own number of the copy, sent back to it */
    /* carries the BACKED message to the holder: the round since which the copy is whole */
    struct announcement told;
    uint64_t told_steps; /* update count in that message */
};

/* State of a piece with an update rule (A19): parameters and moments twice, since a round reads one
 * state and writes the other until its commit. */
struct parameters {
    bool are_set;           /* the parameters have been set, by a broadcast, a restore or a copy */
    unsigned now;           /* index of the committed state in state[] */
    uint64_t steps;         /* updates committed since the parameters were set */
    uint64_t swapped_round; /* newest round that has made a state */
    bool has_before;        /* the spare state is the one before swapped_round */
    bool were_set;          /* are_set before swapped_round */
    uint64_t steps_before;  /* steps before swapped_round */
    struct update_settings settings[2]; /* settings of rounds, by their last bit */
    uint64_t restored_steps[2];         /* likewise: update count that a RESTORE sets */
    /* newest settings of any first rank: for a first rank that has sent none (A44) */
    struct update_settings told;
    bool is_told;                            /* `told` has been sent */
    float *state[2][1 + UPDATE_MOMENTS_MAX]; /* parameters, then moments */
    struct replica replica;
    uint32_t keeper;      /* aggregator that is to store the copy; 0: workers may (A49) */
    uint32_t next_keeper; /* holder that follows once the copy at `keeper` is read or needless */
    bool has_next_keeper; /* next_keeper is valid */
    /* the change waits for the former holder even while that is not connected */
    bool waits_for_former;
    /* Replica holders that have sent an offer before the coordinator named them; NULL: none. */
    struct worker *early[2];
    struct record_backup offers[2];
    uint64_t fetched; /* round whose state is being read from the copy; 0: none */
    /* round whose state is being written to the copy, outside of a round; 0: none */
    uint64_t filled;
};

/* NULL: no memory. One block of the job's account, freed with arena_free(). */
struct parameters *parameters_create(const struct piece *p);
size_t parameters_bytes(enum update_rule rule, uint64_t elements);
/* Stores the settings that a worker has sent; they count from its next announcement on. */
void parameters_tell(struct worker *w, const struct record_settings *told);
/* True when the operation is defined for the piece: updates need parameters, and pieces with
 * parameters allow no other sums. */
bool parameters_suit(const struct piece *p, const struct operation *operation);
/* Where the round stores the chunk's values in the spare state; NULL: the round sets no array. A
 * copy that is read goes into the committed state. */
float *parameters_set_at(const struct transfer *t);
/* Arrays of a state, each as long as the piece; 0: no update rule. */
static inline uint32_t parameters_arrays(const struct piece *p)
{
    return p->parameters ? 1 + (uint32_t)update_moments(p->terms.rule) : 0;
}
/* The chunk's part of the committed state if the round saves it; NULL: the round does not. */
const float *parameters_saved(const struct transfer *t);
/* Takes from an announcement what the rule needs: the settings of the first rank, the update count
 * of a restoring root. */
void parameters_hear(struct piece *p, const struct rank *rank, const struct operation *operation,
                     const struct record_ready *ready);
/* True when the open round updates the parameters. */
static inline bool parameters_step(const struct piece *p)
{
    return p->parameters && !p->is_copy && p->operation && p->operation->updates;
}
/* The last pass of a chunk: reduces `sums` and updates; the new parameters go to its targets and,
 * with the moments, to the spare state. */
void parameters_update(struct transfer *t, const struct reduce_pass *sums);
/* Undoes the committed state of the open round, which is done again for other ranks (A44). False:
 * the state before it is not on this lane. */
bool parameters_revert(struct piece *p);
/* Update count once the open round is committed. */
uint64_t parameters_steps_after(const struct piece *p);
/* The spare state becomes the committed one. */
void parameters_commit(struct piece *p);

#endif
