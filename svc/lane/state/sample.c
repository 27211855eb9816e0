/* Owns the sampled blocks of pieces, and the means of these blocks in the previous round. A round
 * that is repeated has already overwritten some of these means, so no product of two means is
 * computed for this round. The results of rounds do not depend on the sample. RULES.md: A97;
 * svc/wire/README.md: W22. */
#include "svc/lane/state/sample.h"

#include "svc/lane/job/tell.h"
#include "svc/reduce/reduce.h"

#include <math.h>
#include <string.h>

#define BLOCK_ELEMENTS 1024u

struct sampled_block {
    uint64_t first; /* first element in the piece */
    uint32_t elements;
    float *mean; /* means of the previous round, or of the open round */
};

struct sampled {
    uint64_t round;  /* newest committed round of the job with means in `blocks`; 0: none */
    uint64_t open;   /* round of the job in progress */
    bool is_written; /* `blocks` contains means of a round that is not committed */
    bool has_former; /* `blocks` contains the means of the round before the open round */
    double squares, mean, product;
    uint32_t count;
    struct sampled_block blocks[];
};

/* ---- the choice of blocks ---- */

/* Hashes the numbers of piece and block with the 64-bit finalizer of MurmurHash3. */
static uint32_t sample_hash(uint32_t piece, uint64_t block)
{
    uint64_t h = block * UINT64_C(0x9e3779b97f4a7c15) + piece;
    h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return (uint32_t)(h ^ h >> 33);
}

static bool sample_has(uint32_t piece, uint64_t block, uint32_t shift)
{
    return shift < 32 && sample_hash(piece, block) <= UINT32_MAX >> shift;
}

static bool sample_takes(unsigned dtype)
{
    return dtype == REDUCE_F32 || dtype == REDUCE_F16 || dtype == REDUCE_BF16;
}

static uint64_t sample_blocks_of(const struct piece *p)
{
    return sample_takes(p->dtype) ? (p->elements + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS : 0;
}

static uint64_t sample_count(const struct piece *p, uint32_t shift)
{
    uint64_t count = 0;
    for (uint64_t block = 0; block < sample_blocks_of(p); block++)
        count += sample_has(p->id, block, shift);
    return count;
}

/* Drops the blocks that are not in a smaller sample. */
static void sampled_thin(const struct piece *p, uint32_t shift)
{
    struct sampled *s = p->sampled;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (sample_has(p->id, s->blocks[i].first / BLOCK_ELEMENTS, shift))
            s->blocks[kept++] = s->blocks[i];
    }
    s->count = kept;
}

static void sampling_halve(struct lane_job *job)
{
    job->sampling->shift++;
    job->sampling->blocks = 0;
    list_for_each_entry (struct piece, p, &job->pieces, link) {
        if (!p->sampled)
            continue;
        sampled_thin(p, job->sampling->shift);
        job->sampling->blocks += p->sampled->count;
    }
}

static struct sampled *sampled_create(struct piece *p, uint32_t count)
{
    struct lane_job *job = p->job;
    size_t head = sizeof(struct sampled) + count * sizeof(struct sampled_block);
    struct sampled *s = arena_alloc(job->lane->options.arena, &job->account,
                                    head + count * BLOCK_ELEMENTS * sizeof(float));
    if (!s)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        s->blocks[i].mean = (float *)((char *)s + head) + (size_t)i * BLOCK_ELEMENTS;
    return s;
}

static void sampled_fill(const struct piece *p, uint32_t shift)
{
    struct sampled *s = p->sampled;
    for (uint64_t block = 0; block < sample_blocks_of(p); block++) {
        uint64_t first = block * BLOCK_ELEMENTS, left = p->elements - first;
        if (!sample_has(p->id, block, shift))
            continue;
        s->blocks[s->count].first = first;
        s->blocks[s->count++].elements = left < BLOCK_ELEMENTS ? (uint32_t)left : BLOCK_ELEMENTS;
    }
}

void sample_add(struct piece *p)
{
    struct sampling *all = p->job->sampling;
    uint64_t count = sample_count(p, all->shift);
    while (all->blocks + count > RECORD_SAMPLE_BLOCKS) {
        sampling_halve(p->job);
        count = sample_count(p, all->shift);
    }
    p->sampled = sampled_create(p, (uint32_t)count);
    bool has_blocks = p->sampled;
    if (!has_blocks)
        p->sampled = sampled_create(p, 0);
    if (!p->sampled)
        return;
    if (has_blocks)
        sampled_fill(p, all->shift);
    all->pieces++;
    all->blocks += p->sampled->count;
}

void sample_free(struct piece *p)
{
    if (!p->sampled)
        return;
    p->job->sampling->pieces--;
    p->job->sampling->blocks -= p->sampled->count;
    arena_free(p->job->lane->options.arena, &p->job->account, p->sampled);
}

/* ---- the sums of a round ---- */

void sample_start(struct piece *p, uint64_t round)
{
    struct sampled *s = p->sampled;
    s->has_former = !s->is_written && s->round > 0 && s->round + 1 == round;
    s->is_written = true;
    s->open = round;
    s->squares = s->mean = s->product = 0;
}

/* Part of a block that is also in a chunk: `elements` elements, beginning with element `first` of
 * the piece. */
struct overlap {
    uint64_t first;
    size_t elements;
};

static struct overlap sample_overlap(const struct transfer *t, const struct sampled_block *b)
{
    uint64_t first = b->first > t->first ? b->first : t->first;
    uint64_t block_end = b->first + b->elements, chunk_end = t->first + t->elements;
    uint64_t end = block_end < chunk_end ? block_end : chunk_end;
    return (struct overlap){first, end > first ? (size_t)(end - first) : 0};
}

/* Sums the inputs of the pass in f32. With one input and without a partial sum, the function only
 * converts the input. */
static void sample_reduce(const struct transfer *t, const void *const sources[], int count,
                          const void *partial, uint32_t divisor, struct overlap part, float *ret)
{
    const struct piece *p = t->piece;
    const void *at[REDUCE_SOURCES_MAX];
    void *target = ret;
    for (int i = 0; i < count; i++)
        at[i] = (const char *)sources[i] + piece_bytes(p, part.first - t->first);
    reduce_pick(p->job->lane->options.kernels, REDUCE_SUM, p->dtype,
                REDUCE_F32)(&(struct reduce_pass){
        .targets = &target,
        .targets_count = 1,
        .sources = at,
        .sources_count = count,
        .partial = partial ? (const float *)partial + (part.first - t->first) : NULL,
        .elements = part.elements,
        .divisor = divisor});
}

static double sample_product(const struct piece *p, const float *a, const float *b, size_t elements)
{
    return reduce_products(p->job->lane->options.kernels, a, b, elements);
}

void sample_inputs(const struct transfer *t, const void *const sources[])
{
    const struct piece *p = t->piece;
    float values[BLOCK_ELEMENTS];
    for (uint32_t k = 0; k < p->sampled->count; k++) {
        struct overlap part = sample_overlap(t, &p->sampled->blocks[k]);
        for (uint32_t i = 0; part.elements > 0 && i < t->sources; i++) {
            sample_reduce(t, &sources[i], 1, NULL, 0, part, values);
            p->sampled->squares += sample_product(p, values, values, part.elements);
        }
    }
}

void sample_mean(const struct transfer *t, const void *const sources[], const void *partial)
{
    const struct piece *p = t->piece;
    struct sampled *s = p->sampled;
    float mean[BLOCK_ELEMENTS];
    for (uint32_t k = 0; k < s->count; k++) {
        struct sampled_block *b = &s->blocks[k];
        struct overlap part = sample_overlap(t, b);
        if (part.elements == 0)
            continue;
        float *former = b->mean + (part.first - b->first);
        sample_reduce(t, sources, (int)t->sources, partial, p->sources, part, mean);
        s->mean += sample_product(p, mean, mean, part.elements);
        if (s->has_former)
            s->product += sample_product(p, mean, former, part.elements);
        memcpy(former, mean, part.elements * sizeof *mean);
    }
}

/* ---- the end of a round ---- */

static struct worker *sample_lowest_rank(const struct piece *p)
{
    for (uint32_t i = 0; i < p->members; i++) {
        if (p->ranks[i].part)
            return p->ranks[i].worker;
    }
    return NULL;
}

static void sampling_tell(struct lane_job *job, struct worker *lowest)
{
    const struct sampling *all = job->sampling;
    double scale = ldexp(1, (int)all->shift);
    const struct record_measure told = {.kind = RECORD_MEASURE,
                                        .lane = job->lane->options.id,
                                        .round = all->round,
                                        .inputs = all->inputs,
                                        .blocks = all->blocks,
                                        .squares = scale * all->squares,
                                        .mean = scale * all->mean,
                                        .product = scale * all->product};
    if (lowest && all->inputs > 0)
        tell_measure(lowest, &told);
}

static void sampling_count(struct sampling *all, const struct piece *p, bool is_new)
{
    const struct sampled *s = p->sampled;
    if (s->open > all->round) {
        all->done = 0;
        all->round = s->open;
        all->inputs = p->sources;
        all->squares = all->mean = all->product = 0;
    }
    all->done++;
    if (!is_new || p->sources != all->inputs)
        all->inputs = 0;
    all->squares += s->squares;
    all->mean += s->mean;
    all->product += s->count == 0 || s->has_former ? s->product : (double)NAN;
}

void sample_commit(struct piece *p, uint64_t round, bool is_new)
{
    struct sampled *s = p->sampled;
    struct sampling *all = p->job->sampling;
    s->open = round;
    /* after a copied round the means in the blocks belong to another round */
    s->round = is_new ? round : 0;
    s->is_written = false;
    if (round < all->round)
        return; /* the sums of a later round have begun, so this piece is not counted */
    sampling_count(all, p, is_new);
    if (all->done == all->pieces)
        sampling_tell(p->job, sample_lowest_rank(p));
}
