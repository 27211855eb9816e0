/* Parameters, moments and settings of pieces with an update rule (A19), and the location of their
 * copy (A31, A49). */
#ifndef GRADPOOL_LANE_STATE_PARAMETERS_H
#define GRADPOOL_LANE_STATE_PARAMETERS_H

#include "svc/lane/types.h"

struct transfer;

/* Copy of a piece's state in the memory of another process (A31). The copy has two halves, one for
 * even rounds and one for odd rounds. */
struct replica {
    /* worker or replica holder that has lent the memory of the copy; NULL: no copy */
    struct worker *worker;
    uint32_t region; /* memory region of that process that contains the copy */
    /* the memory of the state is registered with the fabrics, so that the copy can be written */
    bool is_known;
    uint64_t offset[2]; /* offsets of the halves, at the index round & 1 */
    /* first round whose state was written to the copy; RECORD_ROUND_NONE: no state was written */
    uint64_t since;
    uint64_t steps[3]; /* update counts of the states, at the index round % 3 */
    /* rounds whose complete states the halves contain, according to the holder's offer (A49); 0:
     * none */
    uint64_t rounds[2];
    uint64_t ranks[2]; /* hash of the set of ranks of each round in `rounds` */
    /* the round in progress writes to this copy; decided when the round starts */
    bool is_taken;
    /* stamps that the lane writes after each half of a copy at a replica holder; a stamp marks the
     * state in its half as complete */
    struct record_stamp stamp[2];
    /* zeros that the lane writes over a half's stamp before it writes a state to this half, because
     * the state is incomplete until its last byte is written */
    struct record_stamp none;
    uint32_t piece; /* number of the piece */
    uint32_t note;  /* number of the copy at the holder; sent back to the holder */
    /* data of the message BACKED to the holder; closed_round is a round whose complete state is in
     * the copy */
    struct announcement told;
    uint64_t told_steps; /* update count in the message BACKED */
};

/* State of a piece with an update rule (A19). Parameters and moments exist twice: a round reads the
 * committed state, and writes the other state until the commit. */
struct parameters {
    bool are_set;           /* the parameters were set by a broadcast, a restore or a copy */
    unsigned now;           /* index of the committed state in state[] */
    uint64_t steps;         /* number of committed updates since the parameters were set */
    uint64_t swapped_round; /* newest round that has produced a state */
    bool has_before; /* the state that is not committed is the one before round swapped_round */
    bool were_set;   /* value of are_set before round swapped_round */
    uint64_t steps_before; /* value of steps before round swapped_round */
    /* settings of rounds, at the index round & 1 */
    struct update_settings settings[2];
    /* with FOLLOWS_ROUNDS: settings that each rank announced, indexed by the last bit of the round
     * and the number of the rank; NULL otherwise */
    struct update_settings *ranks_settings[2];
    bool is_spare_dirty;        /* a round that is not committed has written to the spare state */
    uint64_t restored_steps[2]; /* update counts that RESTOREs set, at the index round & 1 */
    /* newest settings that the lowest rank has sent; used if a later lowest rank has sent none
     * (A44) */
    struct update_settings told;
    bool is_told;                            /* `told` is valid */
    float *state[2][1 + UPDATE_MOMENTS_MAX]; /* parameters, followed by moments */
    struct replica replica;
    uint32_t holder; /* aggregator that should store the copy; 0: workers may store it (A49) */
    /* aggregator that replaces `holder` as soon as the copy at `holder` was read or is no longer
     * needed */
    uint32_t next_holder;
    bool has_next_holder; /* next_holder is valid */
    /* the change waits for the former holder even if that holder is not connected */
    bool waits_for_former;
    /* Replica holders whose offers arrived before the coordinator named them; NULL: none. */
    struct worker *early[2];
    struct record_backup offers[2];
    uint64_t fetched; /* round whose state is being read from the copy; 0: none */
    /* round whose state is being written to the copy between rounds; 0: none */
    uint64_t filled;
};

/* Creates the parameters in one block of memory, which is counted in the job's account. A piece
 * whose rounds use the job's sets has a second block, for the settings that each rank sends. NULL:
 * no memory. */
struct parameters *parameters_create(const struct piece *p);
void parameters_free(struct piece *p);
size_t parameters_bytes(enum update_rule rule, uint64_t elements);
/* Stores settings from a worker. They apply from the worker's next announcement on. */
void parameters_tell(struct worker *w, const struct record_settings *told);
/* Returns whether the operation is possible. Updates, saves and restores need parameters. A piece
 * with parameters allows only these operations and broadcasts. */
bool parameters_suit(const struct piece *p, const struct operation *operation);
/* Returns the address where the round stores the values of the chunk, in the state that is not
 * committed. While the lane reads a copy, the result is an address in the committed state. NULL:
 * the round sets no array. */
float *parameters_set_at(const struct transfer *t);
/* Returns the number of arrays of a state, each as long as the piece; 0: no update rule. */
static inline uint32_t parameters_arrays(const struct piece *p)
{
    return p->parameters ? 1 + (uint32_t)update_moments(p->terms.rule) : 0;
}
/* Returns the chunk's part of the committed state if the round saves the state, otherwise NULL. */
const float *parameters_saved(const struct transfer *t);
/* Stores the values of an announcement that the rule needs: the settings of the first rank, and the
 * update count of a root that restores. */
void parameters_hear(struct piece *p, const struct rank *rank, const struct operation *operation,
                     const struct record_ready *ready);
/* Returns whether the round in progress updates the parameters. */
static inline bool parameters_step(const struct piece *p)
{
    return p->parameters && !p->is_copy && p->operation && p->operation->updates;
}
/* Called when a round starts. The round uses the settings of the lowest rank that takes part, and
 * may write to the spare state. */
void parameters_start(struct piece *p);
/* Returns whether the complete and committed state after `round` is on this lane. */
bool parameters_have(const struct piece *p, uint64_t round);
/* Returns the parameters after `round`, from element `first` on. parameters_have() must be true for
 * this round. */
const float *parameters_at(const struct piece *p, uint64_t round, uint64_t first);
/* Handles the last pass of a chunk: reduces `sums` and makes the update. The new parameters go to
 * the targets and, together with the moments, to the spare state. */
void parameters_update(struct transfer *t, const struct reduce_pass *sums);
/* Handles a chunk of an update without gradients: the new state equals the old state, and the
 * parameters go to the targets. The update counts as a step. */
void parameters_keep(const struct transfer *t, void *const targets[], int count);
/* Undoes the committed state of the open round, which is repeated for other ranks (A44). Returns
 * false if this lane does not have the previous state. */
bool parameters_revert(struct piece *p);
/* Returns the update count after the commit of the open round. */
uint64_t parameters_steps_after(const struct piece *p);
/* Makes the newly written state the committed one. */
void parameters_commit(struct piece *p);

#endif
