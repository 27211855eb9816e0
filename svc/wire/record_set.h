/* Records about the set of a round, and about the results that ranks outside the set receive:
 * CHOSEN, PASSED, LANDED, GO_ON, MEASURE. This header belongs to record.h, whose functions check
 * these records. svc/wire/README.md: W13, W22. */
#ifndef GRADPOOL_WIRE_RECORD_SET_H
#define GRADPOOL_WIRE_RECORD_SET_H

#include "svc/wire/ranks.h"

#include <stdint.h>

#define RECORD_MISSING_WORDS RANKS_WORDS
#define RECORD_GRADIENTS_MAX 7   /* maximum number of gradients of one rank in one round */
#define RECORD_COUNTED_RANKS 256 /* maximum number of ranks of a set in RECORD_FORM_COUNTS */
#define RECORD_SAMPLE_BLOCKS 256 /* maximum number of blocks of a job on one lane in MEASURE */

/* Reason for the close of a round. */
enum record_reason {
    RECORD_REASON_ALL,     /* every rank has announced its gradient */
    RECORD_REASON_GAIN,    /* the rule decided at an announcement */
    RECORD_REASON_MOMENT,  /* the rule decided at a time that it had set, without an announcement */
    RECORD_REASON_ABSENCE, /* a rank that was absent for long has announced its gradient */
    RECORD_REASON_REPLAY,  /* the set comes from a recording */
    RECORD_REASONS,
};

/* Meaning of the bits of `ranks`. */
enum record_form {
    RECORD_FORM_RANKS, /* one bit for each rank of the set */
    /* number of gradients of each rank, 0 to 7, in three planes of 256 bits, lowest first */
    RECORD_FORM_COUNTS,
    /* ranks that have received the result of the round (takers); the set may be empty; used in
     * PASSED only */
    RECORD_FORM_TAKERS,
};

/* CHOSEN and PASSED. round_set.h writes and reads the ranks. */
struct record_chosen {
    uint8_t kind;
    /* a value of enum record_reason. 0 for takers; RECORD_REASON_REPLAY for the takers of the last
     * recorded round */
    uint8_t reason;
    uint8_t form; /* a value of enum record_form */
    uint8_t reserved[5];
    uint64_t round;
    uint64_t ranks[RECORD_MISSING_WORDS];
    uint32_t epoch;      /* epoch of the leading tensor on the lane that has decided the set */
    uint32_t reserved_2; /* always 0 */
};
_Static_assert(sizeof(struct record_chosen) == 120, "one ring record, no holes");

struct record_landed {
    uint8_t kind;
    uint8_t reserved[3];
    uint32_t piece; /* number of the piece of the hidden tensor */
    /* round of the job: the worker has the results of this and of all earlier rounds.
     * RECORD_ROUND_NONE: a lane no longer had the results of the requested round */
    uint64_t round;
};
_Static_assert(sizeof(struct record_landed) == 16, "no holes");

struct record_go_on {
    uint8_t kind;
    uint8_t gradient; /* number of the gradient that is wanted, from 2 */
    uint8_t reserved[6];
    uint64_t round; /* round of the job that is open on the leader lane */
};
_Static_assert(sizeof(struct record_go_on) == 16, "no holes");

/* Sums over the gradients of a round, computed from a sample of blocks. A lane sends the sums of
 * its tensors to the lowest rank of the set, which forwards them to the leader lane. Infinite or
 * NaN gradients give infinite or NaN sums, so the receiver must handle such sums. */
struct record_measure {
    uint8_t kind;
    uint8_t reserved;
    /* from a worker: number of lanes that send sums of this round; from a lane: 0 */
    uint16_t lanes;
    uint32_t lane;
    uint64_t round;  /* round of the job */
    uint32_t inputs; /* number of gradients in the mean */
    uint32_t blocks; /* number of blocks of the sample on that lane */
    double squares;  /* sum of the squares of the gradients */
    double mean;     /* square of the mean of the gradients */
    /* scalar product of the mean and the mean of the previous round; NaN: unknown */
    double product;
};
_Static_assert(sizeof(struct record_measure) == 48, "no holes");

#endif
