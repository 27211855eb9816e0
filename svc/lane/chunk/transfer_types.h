/* What a transfer is. README: A21. */
#ifndef GRADPOOL_LANE_CHUNK_TRANSFER_TYPES_H
#define GRADPOOL_LANE_CHUNK_TRANSFER_TYPES_H

#include "svc/reduce/reduce.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct piece;

/* Divides the lengths of long chunks and of what is in flight of them: a sanitizer multiplies what
 * a byte costs, and tests want several turns of a lane, whatever their length. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define TRANSFER_SHORTER 4
#else
#define TRANSFER_SHORTER 1
#endif

/* One chunk on its way: reads in passes of up to REDUCE_SOURCES_MAX, sum, writes. Resumable at
 * every post, because a full queue says -EAGAIN. */
enum transfer_state { TRANSFER_FREE, TRANSFER_READING, TRANSFER_SUMMING, TRANSFER_WRITING };
struct transfer {
    enum transfer_state state;
    struct piece *piece;
    uint64_t first, elements;
    uint32_t number;         /* among the chunks of its round */
    uint32_t share;          /* what it takes of a lane's turn, of TRANSFER_SHARE */
    uint32_t source, target; /* of its step: a place among the members, or OPERATION_EVERYBODY */
    uint32_t array;          /* of the state, where its step is one of these (A30) */
    uint32_t replica_next;   /* how many arrays of it are posted to the copy of the state (A31) */
    bool is_last;            /* of its round */
    uint32_t next_rank;      /* whose read or write is posted next: a place among the members */
    uint32_t sources;        /* of this pass, in source[] */
    bool has_partial;        /* of the passes before, in the partial slot */
    bool is_posted;          /* everything of this state is posted */
    bool is_broken;          /* a post failed: its connection's CLOSED decides what follows */
    bool is_given_up;        /* its round is: it is free once nothing of it is posted */
    uint32_t outstanding;    /* reads or writes */
    const void *input[REDUCE_SOURCES_MAX]; /* a slot; NULL: look at source_rank's memory */
    uint32_t source_rank[REDUCE_SOURCES_MAX];
    char *slots;       /* the partial result, then inputs; NULL: none needed so far */
    size_t slot_bytes; /* 0: the job has fewer of them */
};

/* One long chunk is read while another is written; beside them short ones, each a whole piece; and
 * as many small ones as make a round trip worth its price (A21). In this order, by slot. */
#define LARGE_TRANSFERS 2
#define SHORT_TRANSFERS 2
#define SMALL_TRANSFERS_MAX 64
#define TRANSFERS_PER_JOB (LARGE_TRANSFERS + SHORT_TRANSFERS + SMALL_TRANSFERS_MAX)

#endif
