/* The deal of an elastic job: the samples of each member in each step. Every rank computes the same
 * deal from the same step records, so no message contains samples. One thread at a time may use a
 * deal.
 *
 * With a prefetch of p, record t fixes the samples of step t + 1 + p; steps 1 to 1 + p are dealt to
 * the founding members. A rank in record t confirms its samples up to step t - 1. A rank that is
 * missing in record t is lost: its samples of steps t - 1 to t + p, which no record has confirmed,
 * are dealt again at the end of the epoch. A member may be in record t although it lacks the state
 * of the training. This member is also lost, and a new process has joined with its rank. A planned
 * change deals each sample exactly once in each epoch. If a member dies, no sample is left out, and
 * the samples of two steps may be used twice. */
#ifndef GRADPOOL_CLIENT_ELASTIC_DEAL_H
#define GRADPOOL_CLIENT_ELASTIC_DEAL_H

#include "svc/wire/ranks.h"

#include <stddef.h>

#define DEAL_PREFETCH_MAX 64
#define DEAL_RANKS_MAX (RANKS_WORDS * 64)

struct deal_spec {
    uint64_t samples, epochs, seed;
    uint32_t batch; /* number of samples of all members in one step; 0: batch_per_worker applies */
    uint32_t batch_per_worker; /* number of samples of each member in one step */
    /* p: number of later steps whose samples are known, for loaders that read ahead */
    uint32_t prefetch;
    uint32_t share_least; /* minimum number of samples in a share that is not empty; 0 means 1 */
};

/* The sets of ranks in the step record: the sum of the words that ranks have sent for one step.
 * Every rank that has sent words is in `present`. */
struct deal_record {
    uint64_t present[RANKS_WORDS];
    uint64_t
        /* ranks that have announced, in this record or an earlier one, that they leave */
        leaving[RANKS_WORDS];
    uint64_t holds[RANKS_WORDS]; /* ranks with the state of the training */
};

/* A run: the places first to first + count - 1 in the order of an epoch. */
struct deal_run {
    uint64_t first, count;
};

struct deal_runs {
    struct deal_run *runs;
    size_t count, room;
    uint64_t samples; /* number of samples of all runs together */
};

struct deal_step {
    uint64_t number;
    uint64_t epoch; /* from 0 */
    /* number of the epoch's samples in earlier steps; a sample that was dealt twice counts once */
    uint64_t cursor;
    /* ranks that divide the samples, in order. The sizes of their shares differ by at most one. If
     * the shares would be smaller than share_least, the last ranks have no share. */
    uint64_t members[RANKS_WORDS];
    uint64_t lost[RANKS_WORDS]; /* lost members, whose samples are dealt again */
    uint64_t share_least;       /* share_least of the deal, at least 1 */
    /* samples of all members in this step; no runs: the step is empty */
    struct deal_runs runs;
    bool is_end; /* the last epoch is complete: the training has ended */
};

/* State of a deal. Only deal.c and carry.c change the state of a deal that has begun; resume.c
 * prepares one. */
struct step_deal {
    struct deal_spec spec;
    uint64_t record; /* number of the last record; 0: none */
    uint64_t epoch, cursor;
    uint64_t members[RANKS_WORDS]; /* members of the next step that is dealt */
    struct deal_runs returned;
    struct deal_step steps[DEAL_PREFETCH_MAX + 2]; /* index: number modulo (prefetch + 2) */
};

/* Deals the first 1 + p steps to the founding members. -EINVAL: no samples, no batch, no epochs or
 * no members; both batches are set; the prefetch is above DEAL_PREFETCH_MAX; samples or batch are
 * below share_least. -ENOMEM. */
int deal_init(struct step_deal *deal, const struct deal_spec *spec, const uint64_t *members);
/* Frees the memory of a deal, and zeroes the deal. A zeroed deal has no memory. */
void deal_fini(struct step_deal *deal);

/* Applies the next record, and deals one step. -EOWNERDEAD: no member is left; -ENOMEM. After an
 * error the deal is unusable and can only be freed. */
int deal_apply(struct step_deal *deal, const struct deal_record *record);
/* Returns a step that is dealt and not yet confirmed by a record: `record` to `record` + 1 + p.
 * NULL for any other step. The pointer is valid until the next deal_apply(). */
const struct deal_step *deal_step(const struct step_deal *deal, uint64_t number);

/* Returns the largest number of samples that a step may have. */
uint64_t deal_step_most(const struct deal_spec *spec);
/* Returns the number of samples in the rank's share of the step; 0 for a rank that is lost or no
 * member. */
uint64_t deal_share(const struct deal_step *step, uint32_t rank);
/* Skips the first `skip` samples of the rank's share, and writes the following samples, at most
 * `room`. Samples are numbers below spec.samples. Returns the number of written samples. */
size_t deal_samples(const struct step_deal *deal, const struct deal_step *step, uint32_t rank,
                    uint64_t skip, uint64_t *ret_samples, size_t room);
/* Returns the sample at a place in the order of an epoch: a permutation that depends on the seed
 * and the epoch alone, the same on every host. `place` < spec->samples. */
uint64_t deal_sample(const struct deal_spec *spec, uint64_t epoch, uint64_t place);

/* ---- parts of a deal, for resume.c ---- */

/* Appends places to a list. -ENOMEM. */
int deal_runs_add(struct deal_runs *runs, uint64_t first, uint64_t count);
/* Returns the length of a member's share, even if the member is lost; 0 for other ranks.
 * `ret_begin`: place of the share's first sample among the samples of the step. */
uint64_t deal_share_begin(const struct deal_step *step, uint32_t rank, uint64_t *ret_begin);
/* Deals the first 1 + p steps from the state of the deal. -ENOMEM. */
int deal_first(struct step_deal *deal);

#endif
