/* What a tensor's declaration says besides its shape: whose tensor it is, whose announcements make
 * a round of it, and what its lane makes of the sum. Travels and is stored as these bytes,
 * little-endian; all zeros are the plain terms (all ranks, every round), and no bytes at all mean
 * the same. */
#ifndef GRADPOOL_WIRE_TERMS_H
#define GRADPOOL_WIRE_TERMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TERMS_RANK_WORDS 12 /* 768 ranks */

/* All but ALL are for reductions only. */
enum quorum {
    QUORUM_ALL,    /* every rank of the set */
    QUORUM_FIRST,  /* the first `bound` ranks; the late get the newest result (W12) */
    QUORUM_CHOSEN, /* the set that the job's leader chose for the round (W13) */
    QUORUM_STALE,  /* each rank by itself, at most `bound` rounds ahead of the slowest */
    QUORUM_ANY,    /* each rank by itself */
};

/* The set of each round (QUORUM_FIRST) is what the job's QUORUM_CHOSEN wait for. */
#define TERMS_LEADS 1u
/* The number of the last update rule. */
#define TERMS_RULES_MAX 5
/* The lane sums the squares of inputs and results. */
#define TERMS_MEASURES 2u

struct terms {
    uint32_t quorum; /* enum quorum */
    uint32_t bound;
    uint32_t flags;
    uint8_t rule;        /* enum update_rule: its lane keeps parameters (W14); 0: it does not */
    uint8_t reserved[3]; /* 0 */
    uint64_t ranks[TERMS_RANK_WORDS]; /* the set; no bit: all ranks of the job */
};
_Static_assert(sizeof(struct terms) == 112, "no holes");

/* From a peer or a file. -EBADMSG: another length. */
int terms_read(const void *data, size_t bytes, struct terms *ret_terms);
/* NULL when a job of so many workers can have them, else what is wrong with them. */
const char *terms_fault(const struct terms *terms, uint32_t workers);
/* No set of its own. */
bool terms_are_for_all(const struct terms *terms);
/* To be sent: 0 for plain ones. */
size_t terms_bytes(const struct terms *terms);
bool terms_are_same(const struct terms *a, const struct terms *b);
bool terms_have_rank(const struct terms *terms, uint32_t rank);
uint32_t terms_count(const struct terms *terms, uint32_t workers);

#endif
