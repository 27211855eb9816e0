/* Records of copies of states: BACKUP, BACKED, and the stamp of a copy. This header belongs to
 * record.h, whose functions check these records. svc/wire/README.md: W17, W20. */
#ifndef GRADPOOL_WIRE_RECORD_COPY_H
#define GRADPOOL_WIRE_RECORD_COPY_H

#include <stdint.h>

/* Two places for parameters and moments of a piece, as a SAVE writes them. The memory is lent, and
 * no other process writes there. The record is sent before the first announcement of the piece on
 * each connection. */
struct record_backup {
    uint8_t kind;
    uint8_t reserved[3];
    uint32_t piece;
    uint32_t region;
    uint32_t note; /* number chosen by the sender, returned in BACKED */
    /* Offsets of the two places, indexed by the last bit of the round, so that a new state does not
     * overwrite the previous one. */
    uint64_t offset[2];
    /* first round whose state was written to these places; RECORD_ROUND_NONE: the places are
     * offered, and contain no state until BACKED */
    uint64_t since;
    /* number of updates in the state after a round, indexed by the round modulo 3 */
    uint64_t steps[3];
    /* replica holder: rounds whose states are complete in the two places; 0: none */
    uint64_t rounds[2];
    uint64_t ranks[2]; /* replica holder: hash of the ranks of each round, from its stamp */
};
_Static_assert(sizeof(struct record_backup) == 96, "no holes");

/* Stamp of a copy. A replica holder has memory for two states of a piece. A stamp follows each
 * state, and is written when the whole state has landed (W20). */
struct record_stamp {
    uint64_t round, steps; /* round 0: no state */
    uint64_t ranks;        /* hash of the ranks that the piece had at that time */
};

struct record_backed {
    uint8_t kind;
    uint8_t reserved[3];
    uint32_t piece;
    uint32_t note; /* `note` of the BACKUP */
    uint32_t padding;
    /* the copy has the state after this round, and the lane will write each later state to it;
     * RECORD_ROUND_NONE: the lane no longer writes to the copy */
    uint64_t round;
    uint64_t steps; /* update count of that state */
};
_Static_assert(sizeof(struct record_backed) == 32, "no holes");

#endif
