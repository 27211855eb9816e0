/* The terms of a tensor, declared besides its shape: its set of ranks, the quorum of a round, and
 * the update rule of its lane. They travel and are stored as these bytes, little-endian; all zeros
 * are the plain terms (all ranks, every round), and so are no bytes at all. */
#ifndef GRADPOOL_WIRE_TERMS_H
#define GRADPOOL_WIRE_TERMS_H

#include "svc/wire/ranks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TERMS_RANK_WORDS RANKS_WORDS

/* All but ALL are for reductions only. */
enum quorum {
    QUORUM_ALL,    /* every rank of the set */
    QUORUM_FIRST,  /* the first `bound` ranks; late ranks get the newest result (W12) */
    QUORUM_CHOSEN, /* the set that the job's leader chose for the round (W13) */
    QUORUM_STALE,  /* each rank by itself, at most `bound` rounds ahead of the slowest */
    QUORUM_ANY,    /* each rank by itself */
};

/* Flag: the set of each round (QUORUM_FIRST) is the set of the job's QUORUM_CHOSEN tensors. */
#define TERMS_LEADS 1u
/* The number of the last update rule. */
#define TERMS_RULES_MAX 5
/* Flag: the lane sums the squares of inputs and results. */
#define TERMS_MEASURES 2u

struct terms {
    uint32_t quorum; /* enum quorum */
    uint32_t bound;
    uint32_t flags;
    uint8_t rule;        /* enum update_rule: its lane keeps parameters (W14); 0: none */
    uint8_t reserved[3]; /* 0 */
    uint64_t ranks[TERMS_RANK_WORDS]; /* the set; no bit: all ranks of the job */
};
_Static_assert(sizeof(struct terms) == 112, "no holes");

/* Reads the bytes of a peer or a file. -EBADMSG: another length. */
int terms_read(const void *data, size_t bytes, struct terms *ret_terms);
/* NULL: the terms are valid in a job of `workers`; else their fault, as a sentence. */
const char *terms_fault(const struct terms *terms, uint32_t workers);
/* Whether the tensor has no set of its own. */
bool terms_are_for_all(const struct terms *terms);
/* Bytes to send: 0 for plain terms. */
size_t terms_bytes(const struct terms *terms);
bool terms_are_same(const struct terms *a, const struct terms *b);
bool terms_have_rank(const struct terms *terms, uint32_t rank);
uint32_t terms_count(const struct terms *terms, uint32_t workers);

#endif
