/* Update rules in a lane (A19). */
#ifndef GRADPOOL_LANE_STATE_PARAMETERS_H
#define GRADPOOL_LANE_STATE_PARAMETERS_H

#include "svc/lane/types.h"

struct transfer;

/* Where a copy of it goes (A31). */
struct replica {
    struct worker *worker; /* in whose memory; NULL: nobody has one */
    uint32_t region;
    bool is_known;      /* to the fabrics, that the state is written from */
    uint64_t offset[2]; /* of states after rounds, by their last bit */
    uint64_t since;     /* the first round that went there; RECORD_ROUND_NONE: none so far */
    uint64_t steps[3];  /* behind those states, by the round modulo 3 */
    uint64_t rounds[2]; /* of a keeper, as it came: whose states lie there whole (A49), ... */
    uint64_t ranks[2];  /* ... and of which ranks those rounds were */
    bool is_taken;      /* by the round that is under way: it had begun when that began */
    struct record_stamp stamp[2], none; /* for a keeper, behind them */
    uint32_t piece, note;
    struct announcement told; /* what it is told hangs on this: since when it is whole ... */
    uint64_t told_steps;      /* ... and the updates behind that */
};

/* What a lane keeps for a piece with an update rule (A19): parameters and moments twice, since a
 * round reads the one state and writes the other until it is committed. */
struct parameters {
    bool are_set;                       /* by a broadcast */
    unsigned now;                       /* the state that is committed */
    uint64_t steps;                     /* updates committed since they were set */
    uint64_t swapped_round;             /* the newest that has made a state */
    bool has_before;                    /* the spare is the state before that round, ... */
    bool were_set;                      /* ... so much was set then, ... */
    uint64_t steps_before;              /* ... and so many updates there were */
    struct update_settings settings[2]; /* of rounds, by their last bit */
    uint64_t restored_steps[2];         /* likewise, where a round restores them */
    struct update_settings told;        /* last: for a first rank that has told none (A44) */
    bool is_told;                       /* somebody has told any */
    float *state[2][1 + UPDATE_MOMENTS_MAX];
    struct replica replica;
    uint32_t keeper;      /* the aggregator that is to keep its copy; 0: workers may (A49) */
    uint32_t next_keeper; /* ... once it is known what that one has */
    bool has_next_keeper;
    bool waits_for_former; /* even while that is not connected */
    /* Keepers that offer before it is known that they are to; NULL: none. */
    struct worker *early[2];
    struct record_backup offers[2];
    uint64_t fetched; /* the round whose state is being read from there; 0: none is */
    uint64_t filled;  /* likewise, written there without a round */
};

/* NULL: no memory. Lies in one block, to be freed as such. */
struct parameters *parameters_create(const struct piece *p);
size_t parameters_bytes(enum update_rule rule, uint64_t elements);
void parameters_tell(struct worker *w, const struct record_settings *told);
/* Whether the piece may have this operation; a piece without parameters knows no updates. */
bool parameters_suit(const struct piece *p, const struct operation *operation);
/* Where a chunk of an array that is being set goes; NULL: the round sets none. */
float *parameters_set_at(const struct transfer *t);
/* A state is so many arrays, each as long as the piece. */
static inline uint32_t parameters_arrays(const struct piece *p)
{
    return p->parameters ? 1 + (uint32_t)update_moments(p->terms.rule) : 0;
}
/* An array of the state that is committed, from the chunk's first element on, where the round gives
 * it away; NULL: it does not. */
const float *parameters_saved(const struct transfer *t);
/* What a rank says of the round that it announces. */
void parameters_hear(struct piece *p, const struct rank *rank, const struct operation *operation,
                     const struct record_ready *ready);
/* The open round makes new parameters. */
static inline bool parameters_step(const struct piece *p)
{
    return p->parameters && !p->is_copy && p->operation && p->operation->updates;
}
/* The last pass of a chunk: `sums` with new parameters as its result, and the state after it. */
void parameters_update(struct transfer *t, const struct reduce_pass *sums);
/* The open round had been committed, and is undone: it is done again for other ranks (A44). False:
 * the state before it is not here. */
bool parameters_revert(struct piece *p);
/* The updates behind the state once the open round is committed. */
uint64_t parameters_steps_after(const struct piece *p);
/* The round's state becomes the one that holds. */
void parameters_commit(struct piece *p);

#endif
