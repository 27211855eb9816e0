/* A transfer: one chunk in progress. RULES.md: A21. */
#ifndef GRADPOOL_LANE_CHUNK_TRANSFER_TYPES_H
#define GRADPOOL_LANE_CHUNK_TRANSFER_TYPES_H

#include "svc/reduce/reduce.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct piece;

/* Divides the lengths of long chunks in builds with a sanitizer, which multiplies the cost of a
 * byte; tests need several turns whatever the length of a chunk. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define TRANSFER_SHORTER 4
#else
#define TRANSFER_SHORTER 1
#endif

/* One chunk in progress: reads in passes of up to REDUCE_SOURCES_MAX, sum, writes. Each post may be
 * tried again, because a full queue returns -EAGAIN. */
enum transfer_state { TRANSFER_FREE, TRANSFER_READING, TRANSFER_SUMMING, TRANSFER_WRITING };
struct transfer {
    enum transfer_state state;
    struct piece *piece;
    uint64_t first; /* element of the piece */
    uint64_t elements;
    uint32_t number;       /* number among the chunks of the round */
    uint32_t share;        /* share of a lane's turn, of TRANSFER_SHARE */
    uint32_t source;       /* operation_source() of the step */
    uint32_t target;       /* operation_target() of the step */
    uint32_t array;        /* array of the state, if the step is one of these (A30) */
    uint32_t replica_next; /* next array to be posted to the copy of the state (A31) */
    bool is_last;          /* last chunk of the round */
    uint32_t next_rank;    /* place of the member whose read or write is posted next */
    uint32_t sources;      /* inputs of this pass, in input[] */
    bool has_partial;      /* the partial slot has the result of the passes before */
    bool is_posted;        /* all operations of this state are posted */
    /* an operation failed: the CLOSED event of its connection decides how the round ends */
    bool is_broken;
    bool is_given_up;     /* the round was given up: the transfer is free once nothing is posted */
    uint32_t outstanding; /* reads or writes that are posted and not complete */
    /* slot or inline input; NULL: in the mapped memory of source_rank */
    const void *input[REDUCE_SOURCES_MAX];
    uint32_t source_rank[REDUCE_SOURCES_MAX]; /* places of the members */
    char *slots;       /* slots: the partial result, then inputs; NULL: the window is not open */
    size_t slot_bytes; /* 0: the job has no such transfer */
};

/* Transfers of a job, in this order: long ones, of which one reads while the other writes; short
 * ones, each a whole piece; small ones, as many as make a round trip worth its cost (A21). */
#define LARGE_TRANSFERS 2
#define SHORT_TRANSFERS 2
#define SMALL_TRANSFERS_MAX 64
#define TRANSFERS_PER_JOB (LARGE_TRANSFERS + SHORT_TRANSFERS + SMALL_TRANSFERS_MAX)

#endif
