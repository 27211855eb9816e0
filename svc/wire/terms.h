/* The terms of a tensor, which are declared together with its shape: its set of ranks, the quorum
 * of a round, and the update rule of its lane. Messages and the store contain the bytes of this
 * struct, little-endian. If all bytes are zero, or there are no bytes, the terms are plain: all
 * ranks take part in every round. */
#ifndef GRADPOOL_WIRE_TERMS_H
#define GRADPOOL_WIRE_TERMS_H

#include "svc/wire/ranks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TERMS_RANK_WORDS RANKS_WORDS

/* Decides which ranks take part in a round. Every value except QUORUM_ALL is for reductions
 * only. */
enum quorum {
    QUORUM_ALL, /* every rank of the set */
    /* the first `bound` ranks that announce the round; late ranks get the newest result (W12) */
    QUORUM_FIRST,
    QUORUM_CHOSEN, /* the set that the job's leader tensor has chosen for the round (W13) */
    QUORUM_STALE,  /* a round has one rank, which may be at most `bound` rounds ahead of the slowest
                    * rank */
    QUORUM_ANY,    /* a round has one rank, which may be any number of rounds ahead */
};

/* Name of the tensor whose rounds are the step records of a job with a deal. In such a job late
 * workers enter only between two iterations. */
#define TERMS_STEPS_NAME "gradpool.steps"

/* Flag of the leading tensor, which has QUORUM_FIRST. The job's QUORUM_CHOSEN tensors use the sets
 * of the leading tensor's rounds. */
#define TERMS_LEADS 1u
/* Number of the last update rule. */
#define TERMS_RULES_MAX 5
/* Flag: the lane sums the squares of inputs and results. */
#define TERMS_MEASURES 2u

/* Flag of tensors of a job with backup workers (W22). With QUORUM_CHOSEN: the rounds with gradients
 * are rounds of the job, and `root` of READY has the number of the job's round; in all other rounds
 * all ranks take part. With TERMS_LEADS: the tensor counts the rounds of the job, and ranks outside
 * a set get PASSED. */
#define TERMS_FOLLOWS 4u

/* Largest `lag`: maximum number of results of a piece that a lane stores. */
#define TERMS_LAG_MAX 16

struct terms {
    uint32_t quorum; /* a value of enum quorum */
    uint32_t bound;
    uint32_t flags;
    uint16_t rule; /* a value of enum update_rule: the lane stores parameters (W14); 0: none */
    /* with TERMS_FOLLOWS and without a rule: number of rounds by which a rank may lag behind the
     * job. The lane stores the results of this number of rounds, and the leader lane closes no
     * round that would make a rank lag further behind. 0: the tensors of the job have rules */
    uint16_t lag;
    /* the set of ranks, one bit for each rank; without any bit, all ranks of the job are in the
     * set */
    uint64_t ranks[TERMS_RANK_WORDS];
};
_Static_assert(sizeof(struct terms) == 112, "no holes");

/* Reads terms from bytes of a peer or a file. Returns 0, or -EBADMSG if the number of bytes is
 * wrong. */
int terms_read(const void *data, size_t bytes, struct terms *ret_terms);
/* Returns NULL if the terms are valid in a job of `workers` workers; otherwise a sentence about the
 * error. */
const char *terms_fault(const struct terms *terms, uint32_t workers);
/* Returns whether all ranks of the job use the tensor: no set of ranks was declared. */
bool terms_are_for_all(const struct terms *terms);
/* Returns the number of bytes to send: 0 for plain terms. */
size_t terms_bytes(const struct terms *terms);
bool terms_are_same(const struct terms *a, const struct terms *b);
/* Returns whether the tensor's updates use the sets of the rounds of a job with backup workers. */
static inline bool terms_are_following(const struct terms *terms)
{
    return (terms->flags & (TERMS_FOLLOWS | TERMS_LEADS)) == TERMS_FOLLOWS;
}
bool terms_have_rank(const struct terms *terms, uint32_t rank);
uint32_t terms_count(const struct terms *terms, uint32_t workers);

#endif
