/* A transfer is one chunk in progress. RULES.md: A21. */
#ifndef GRADPOOL_LANE_CHUNK_TRANSFER_TYPES_H
#define GRADPOOL_LANE_CHUNK_TRANSFER_TYPES_H

#include "svc/reduce/reduce.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct piece;

/* Divisor of the length of long chunks. In builds with a sanitizer each byte takes longer, so
 * chunks are shorter. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define TRANSFER_SHORTER 4
#else
#define TRANSFER_SHORTER 1
#endif

/* States of a chunk. Each pass reads and sums up to REDUCE_SOURCES_MAX inputs; after the last pass
 * the chunk is written. A post that returns -EAGAIN, because the queue is full, is repeated. */
enum transfer_state { TRANSFER_FREE, TRANSFER_READING, TRANSFER_SUMMING, TRANSFER_WRITING };
struct transfer {
    enum transfer_state state;
    struct piece *piece;
    uint64_t first; /* first element of the chunk in the piece */
    uint64_t elements;
    uint32_t number; /* number of the chunk in the round */
    uint32_t share;  /* share of a lane's turn, in units of 1/TRANSFER_SHARE */
    uint32_t source; /* operation_source() of the step */
    uint32_t target; /* operation_target() of the step */
    /* number of the array of the state, in operations that handle one array after another (A30) */
    uint32_t array;
    /* sum of the weights of all inputs, by which the last pass divides; 0: no division. A divisor
     * above the number of inputs means that the weights differ */
    uint32_t divisor;
    uint32_t replica_next; /* next array of the state to be posted to the copy (A31) */
    bool is_last;          /* this is the last chunk of the round */
    uint32_t next_rank;    /* index of the member whose read or write is posted next */
    uint32_t next_slot;    /* number of inputs of this member that are posted already */
    uint32_t sources;      /* number of inputs of this pass, in input[] */
    /* the slot for the partial result contains the result of earlier passes */
    bool has_partial;
    bool is_posted; /* all operations of this state are posted */
    /* an operation has failed; the CLOSED event of the connection decides how the round ends */
    bool is_broken;
    bool is_given_up;     /* the round was aborted; the transfer is freed when nothing is posted */
    uint32_t outstanding; /* number of posted reads or writes that are not complete */
    /* slot or inline input; NULL: the input is in source_rank's mapped memory */
    const void *input[REDUCE_SOURCES_MAX];
    uint32_t source_rank[REDUCE_SOURCES_MAX]; /* index of the member that supplies each input */
    uint8_t source_slot[REDUCE_SOURCES_MAX];  /* slot of each input in that member's memory */
    /* slots for the partial result, followed by the inputs; NULL: no window is allocated */
    char *slots;
    size_t slot_bytes; /* 0: the job does not use this kind of transfer */
};

/* Transfers of a job, in this order. Two are long: one reads while the other writes. Two are short,
 * and each of them transfers a whole piece. Up to 64 are small, so that their round trips overlap
 * (A21). */
#define LARGE_TRANSFERS 2
#define SHORT_TRANSFERS 2
#define SMALL_TRANSFERS_MAX 64
#define TRANSFERS_PER_JOB (LARGE_TRANSFERS + SHORT_TRANSFERS + SMALL_TRANSFERS_MAX)

#endif
