/* Loops of a kernel over its arrays, and the kernels of one instruction set. Included by
 * reduce_rules.h; reduce_<set>.c defines VECTOR_BYTES. */
#include "svc/reduce/internal.h"
#include "svc/reduce/reduce_arithmetic.h"

#include <assert.h>

/* Number of vectors that are summed in parallel in registers, which hides the latency of
 * additions. */
#define TILE_VECTORS 4
/* Number of elements that are reduced before the result is copied to the other targets. A block
 * fits into the first-level cache, and is long enough to hide the cost of starting a loop. */
#define BLOCK_ELEMENTS 1024

/* Constants of one kernel. They are known at every call, so the compiler inlines them. */
struct fold {
    vec (*load)(const void *at);         /* loads elements of a source */
    vec (*load_partial)(const void *at); /* loads elements in the dtype of the accumulator */
    void (*store)(void *at, vec v);
    vec (*combine)(vec have, vec next);
    vec (*divide)(vec sum, uint32_t n);
    /* multiplies elements by the weight of their source; NULL: sources have no weights */
    vec (*weigh)(vec v, float weight);
    size_t source_bytes, partial_bytes, target_bytes; /* bytes of an element */
};

inline_always const void *element(const void *array, size_t at, size_t bytes)
{
    return (const char *)array + at * bytes;
}

inline_always void *place(void *array, size_t at, size_t bytes)
{
    return (char *)array + at * bytes;
}

/* Loads one vector of source `s`, with its weight. */
inline_always vec fold_load(const struct fold *f, const struct reduce_pass *p, int s,
                            const void *at)
{
    vec v = f->load(at);
    return f->weigh ? f->weigh(v, p->weights[s]) : v;
}

/* Reduces `vectors` vectors from element `at` on, and stores the result in `to`. Every source is
 * read before any store (R4). */
inline_always void fold_tile(const struct fold *f, const struct reduce_pass *p, size_t at, void *to,
                             const int vectors)
{
    const size_t step = VECTOR_BYTES / f->partial_bytes;
    vec sum[TILE_VECTORS];
    for (int v = 0; v < vectors; v++)
        sum[v] = p->partial
                     ? f->load_partial(element(p->partial, at + v * step, f->partial_bytes))
                     : fold_load(f, p, 0, element(p->sources[0], at + v * step, f->source_bytes));
    for (int s = p->partial ? 0 : 1; s < p->sources_count; s++) {
        const void *source = element(p->sources[s], at, f->source_bytes);
        for (int v = 0; v < vectors; v++)
            sum[v] =
                f->combine(sum[v], fold_load(f, p, s, element(source, v * step, f->source_bytes)));
    }
    if (p->divisor > 1)
        for (int v = 0; v < vectors; v++)
            sum[v] = f->divide(sum[v], p->divisor);
    for (int v = 0; v < vectors; v++)
        f->store((char *)to + v * step * f->target_bytes, sum[v]);
}

/* Reduces the last elements, which do not fill a vector. The last elements are copied to local
 * arrays, so that no byte beyond the end of an array is accessed. */
inline_always void fold_rest(const struct fold *f, const struct reduce_pass *p, size_t at,
                             size_t elements, void *target)
{
    char source[REDUCE_SOURCES_MAX][VECTOR_BYTES] = {{0}}, partial[VECTOR_BYTES] = {0};
    char result[VECTOR_BYTES];
    const void *sources[REDUCE_SOURCES_MAX] = {source[0]};
    struct reduce_pass rest = *p;
    for (int s = 0; s < p->sources_count; s++) {
        memcpy(source[s], element(p->sources[s], at, f->source_bytes), elements * f->source_bytes);
        sources[s] = source[s];
    }
    rest.sources = sources;
    if (p->partial) {
        memcpy(partial, element(p->partial, at, f->partial_bytes), elements * f->partial_bytes);
        rest.partial = partial;
    }
    fold_tile(f, &rest, 0, result, 1);
    memcpy(place(target, at, f->target_bytes), result, elements * f->target_bytes);
}

inline_always void fold_block(const struct fold *f, const struct reduce_pass *p, size_t at,
                              size_t end, void *target)
{
    const size_t step = VECTOR_BYTES / f->partial_bytes;
    for (; at + TILE_VECTORS * step <= end; at += TILE_VECTORS * step)
        fold_tile(f, p, at, place(target, at, f->target_bytes), TILE_VECTORS);
    for (; at + step <= end; at += step)
        fold_tile(f, p, at, place(target, at, f->target_bytes), 1);
    if (at < end)
        fold_rest(f, p, at, end - at, target);
}

/* Returns whether no arithmetic is needed. Then every bit is kept, even of a NaN (R8). */
inline_always bool is_copy(const struct fold *f, const struct reduce_pass *p)
{
    return p->sources_count == 1 && !p->partial && p->divisor <= 1 && !f->weigh &&
           f->source_bytes == f->target_bytes;
}

#ifdef HAS_STREAMS
#define LINE_BYTES 64

/* Returns the first element at which a cache line begins in every target, or p->elements if there
 * is none. */
inline_always size_t first_line(const struct fold *f, const struct reduce_pass *p)
{
    const size_t past = (uintptr_t)p->targets[0] % LINE_BYTES;
    const size_t first = (LINE_BYTES - past) % LINE_BYTES / f->target_bytes;
    bool is_alike = past % f->target_bytes == 0;
    for (int t = 1; t < p->targets_count; t++)
        is_alike &= (uintptr_t)p->targets[t] % LINE_BYTES == past;
    return is_alike && first < p->elements ? first : p->elements;
}

/* Stores whole tiles from registers to all targets without filling the cache. A tile consists of
 * whole cache lines in every dtype. Returns the first element after the stored tiles. */
inline_always size_t stream_tiles(const struct fold *f, const struct reduce_pass *p, size_t at)
{
    const size_t step = TILE_VECTORS * (VECTOR_BYTES / f->partial_bytes);
    const size_t vectors = step * f->target_bytes / VECTOR_BYTES;
    vec tile[TILE_VECTORS];
    for (; at + step <= p->elements; at += step) {
        fold_tile(f, p, at, tile, TILE_VECTORS);
        for (int t = 0; t < p->targets_count; t++)
            for (size_t v = 0; v < vectors; v++)
                stream((vec *)place(p->targets[t], at, f->target_bytes) + v, tile[v]);
    }
    stream_end();
    return at;
}
#else
inline_always size_t first_line(const struct fold *f, const struct reduce_pass *p)
{
    return p->elements;
}
inline_always size_t stream_tiles(const struct fold *f, const struct reduce_pass *p, size_t at)
{
    return at;
}
#endif

/* Reduces through the cache: stores the result in the first target, then copies the result to the
 * other targets. */
inline_always void fold_to_all(const struct fold *f, const struct reduce_pass *p, size_t at,
                               size_t elements, bool copies)
{
    const void *first = element(copies ? p->sources[0] : p->targets[0], at, f->target_bytes);
    if (!copies)
        fold_block(f, p, at, at + elements, p->targets[0]);
    for (int t = copies ? 0 : 1; t < p->targets_count; t++)
        if (p->targets[t] != p->sources[0] || !copies)
            memcpy(place(p->targets[t], at, f->target_bytes), first, elements * f->target_bytes);
}

inline_always void fold(const struct reduce_pass *p, const struct fold f)
{
    assert(p->sources_count >= 1 && p->sources_count <= REDUCE_SOURCES_MAX);
    assert(p->targets_count >= 1 && p->targets_count <= REDUCE_TARGETS_MAX);
    const bool copies = is_copy(&f, p);
    const size_t lines = p->streams && !copies ? first_line(&f, p) : p->elements;
    for (size_t at = 0, elements; at < p->elements; at += elements) {
        if (at == lines)
            at = stream_tiles(&f, p, at);
        size_t left = (at < lines ? lines : p->elements) - at;
        elements = left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS;
        fold_to_all(&f, p, at, elements, copies);
    }
}

/* Defines a kernel. Arguments: operation; dtypes of source, target and accumulator; bytes of an
 * element of each dtype. */
#define KERNEL(operation, from, to, held, from_bytes, to_bytes, held_bytes)             \
    static void operation##_##from##_##to(const struct reduce_pass *p)                  \
    {                                                                                   \
        fold(p, (struct fold){load_##from, load_##held, store_##to, operation##_##held, \
                              divide_##held, NULL, from_bytes, held_bytes, to_bytes});  \
    }
#define WEIGHTED(from, to, held, from_bytes, to_bytes, held_bytes)                             \
    static void weighted_##from##_##to(const struct reduce_pass *p)                            \
    {                                                                                          \
        fold(p, (struct fold){load_##from, load_##held, store_##to, sum_##held, divide_##held, \
                              weigh_##held, from_bytes, held_bytes, to_bytes});                \
    }
#define KERNELS_OF(operation)                   \
    KERNEL(operation, f32, f32, f32, 4, 4, 4)   \
    KERNEL(operation, f64, f64, f64, 8, 8, 8)   \
    KERNEL(operation, f16, f16, f32, 2, 2, 4)   \
    KERNEL(operation, f16, f32, f32, 2, 4, 4)   \
    KERNEL(operation, bf16, bf16, f32, 2, 2, 4) \
    KERNEL(operation, bf16, f32, f32, 2, 4, 4)  \
    KERNEL(operation, i32, i32, i32, 4, 4, 4)   \
    KERNEL(operation, i64, i64, i64, 8, 8, 8)
KERNELS_OF(sum)
KERNELS_OF(min)
KERNELS_OF(max)
KERNELS_OF(product)
WEIGHTED(f32, f32, f32, 4, 4, 4)
WEIGHTED(f64, f64, f64, 8, 8, 8)
WEIGHTED(f16, f16, f32, 2, 2, 4)
WEIGHTED(f16, f32, f32, 2, 4, 4)
WEIGHTED(bf16, bf16, f32, 2, 2, 4)
WEIGHTED(bf16, f32, f32, 2, 4, 4)
