/* Replays the results of a job of `migrate` with the kernels of the lanes, block by block: all
 * rounds of one block are computed while the block is in the cache. Must never read a result of the
 * service. */
#include "bench/migrate/reference.h"

#include "bench/lib/gradient.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct update_settings reference_settings = {
    .rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};

/* Hash key of the first parameters; no round has this number. */
#define PARAMETERS_ROUND (UINT64_C(1) << 40)

static struct gradient drawn(const struct reference *r, uint64_t round)
{
    return (struct gradient){r->seed, r->tensor, round};
}

void reference_fill(const struct reference *r, uint32_t rank, float *values)
{
    const struct gradient g = drawn(r, 0);
    gradient_fill(&g, rank, values, r->elements);
}

void reference_stamp(const struct reference *r, uint32_t rank, uint32_t round, float *values)
{
    const struct gradient g = drawn(r, round + 1);
    for (uint64_t i = 0; i < r->elements; i += REFERENCE_BLOCK)
        values[i] = gradient_value(&g, rank, i);
}

void reference_first(const struct reference *r, float *values)
{
    const struct gradient g = drawn(r, PARAMETERS_ROUND);
    gradient_fill(&g, 0, values, r->elements);
}

uint64_t reference_checksum(const float *values, uint64_t first, uint64_t elements)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < elements; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        sum += bits * (2 * (first + i) + 1);
    }
    return sum;
}

struct block {
    const struct reference *r;
    uint64_t first, elements;
    float *gradients[REFERENCE_WORKERS_MAX]; /* gradients of each rank */
    float *state[2][1 + UPDATE_MOMENTS_MAX]; /* the first array of each state is the result */
    float *result;
};

static void fill_block(struct block *b)
{
    const struct gradient g = drawn(b->r, 0), begin = drawn(b->r, PARAMETERS_ROUND);
    for (uint32_t rank = 0; rank < b->r->workers; rank++)
        for (uint64_t i = 0; i < b->elements; i++)
            b->gradients[rank][i] = gradient_value(&g, rank, b->first + i);
    for (uint64_t i = 0; i < b->elements; i++)
        b->state[0][0][i] = gradient_value(&begin, 0, b->first + i);
}

/* Does one step of Adam. `step` counts from 1. The new state is in state[0]. */
static void update(struct block *b, const struct reduce_pass *sums, uint64_t step)
{
    float **before = b->state[0], **after = b->state[1];
    const struct update_state state = {.parameters = before[0],
                                       .moments = {before[1], before[2]},
                                       .ret_parameters = after[0],
                                       .ret_moments = {after[1], after[2]}};
    update_pick(REDUCE_BEST, UPDATE_ADAM, REDUCE_F32, REDUCE_F32)(sums, &reference_settings, step,
                                                                  &state);
    for (size_t i = 0; i < 1 + UPDATE_MOMENTS_MAX; i++) {
        float *array = before[i];
        before[i] = after[i];
        after[i] = array;
    }
}

static void run_round(struct block *b, uint32_t round, uint64_t step)
{
    const struct gradient g = drawn(b->r, round + 1);
    const void *sources[REFERENCE_WORKERS_MAX];
    void *target = b->result;
    for (uint32_t rank = 0; rank < b->r->workers; rank++) {
        b->gradients[rank][0] = gradient_value(&g, rank, b->first);
        sources[rank] = b->gradients[rank];
    }
    const struct reduce_pass sums = {.targets = &target,
                                     .targets_count = 1,
                                     .sources = sources,
                                     .sources_count = (int)b->r->workers,
                                     .elements = b->elements,
                                     .divisor = b->r->is_update ? b->r->workers : 0};
    if (b->r->is_update)
        update(b, &sums, step);
    else
        reduce_pick(REDUCE_BEST, REDUCE_SUM, REDUCE_F32, REDUCE_F32)(&sums);
}

static void replay_block(struct block *b, uint32_t rounds, uint64_t *checksums)
{
    fill_block(b);
    for (uint32_t round = 0; round < rounds; round++) {
        run_round(b, round, round + 1);
        checksums[round] += reference_checksum(b->result, b->first, b->elements);
    }
}

int reference_replay(const struct reference *r, uint32_t rounds, uint64_t *ret_checksums)
{
    enum { ARRAYS = REFERENCE_WORKERS_MAX + 2 * (1 + UPDATE_MOMENTS_MAX) + 1 };
    float *memory = calloc((size_t)ARRAYS * REFERENCE_BLOCK, sizeof *memory), *next = memory;
    if (!memory)
        return -ENOMEM;
    struct block b = {.r = r};
    for (size_t i = 0; i < REFERENCE_WORKERS_MAX; i++, next += REFERENCE_BLOCK)
        b.gradients[i] = next;
    for (size_t i = 0; i < 2 * (1 + UPDATE_MOMENTS_MAX); i++, next += REFERENCE_BLOCK)
        b.state[i % 2][i / 2] = next;
    b.result = next;
    memset(ret_checksums, 0, rounds * sizeof *ret_checksums);
    for (b.first = 0; b.first < r->elements; b.first += REFERENCE_BLOCK) {
        uint64_t left = r->elements - b.first;
        b.elements = left < REFERENCE_BLOCK ? left : REFERENCE_BLOCK;
        replay_block(&b, rounds, ret_checksums);
    }
    free(memory);
    return 0;
}
