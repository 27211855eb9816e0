/* The sums in plain C, written so that the compiler's vectoriser makes good code of them.
 * Every other instruction set must give the bits of this file (R5): never reorder an addition,
 * never multiply by a reciprocal, never let a compiler flag do either (R1, R2). */
#include "svc/reduce/reduce_kernels.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define inline_always static inline __attribute__((always_inline))

/* Says that no iteration depends on an earlier one: a target is a source exactly or not at all
 * (R4), and each element is read before it is written. */
#ifdef __clang__
#define NO_CARRIED_DEPENDENCE _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_CARRIED_DEPENDENCE _Pragma("GCC ivdep")
#endif

/* Elements summed before the other targets get their copy: small enough to be in the first-level
 * cache still, large enough that the loop's set-up does not show. */
#define BLOCK_ELEMENTS 1024

struct pass {
    void *const *targets;
    int targets_count;
    const void *const *sources;
    size_t elements;
    float divisor;
};

/* `count` and `divide` are constants at every call, so each pair becomes its own straight loop. */
inline_always void sum_block(float *target, const float *const source[], size_t elements,
                             float divisor, const int count, const bool divide)
{
    NO_CARRIED_DEPENDENCE
    for (size_t i = 0; i < elements; i++) {
        float sum = source[0][i];
        for (int s = 1; s < count; s++)
            sum += source[s][i];
        target[i] = divide ? sum / divisor : sum;
    }
}

inline_always void sum_blocks(const struct pass *p, const int count, const bool divide)
{
    for (size_t at = 0; at < p->elements; at += BLOCK_ELEMENTS) {
        size_t left = p->elements - at;
        size_t elements = left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS;
        const float *source[REDUCE_SOURCES_MAX];
        for (int s = 0; s < count; s++)
            source[s] = (const float *)p->sources[s] + at;
        float *first = (float *)p->targets[0] + at;
        sum_block(first, source, elements, p->divisor, count, divide);
        for (int t = 1; t < p->targets_count; t++)
            memcpy((float *)p->targets[t] + at, first, elements * sizeof(float));
    }
}

inline_always void sum_sources(const struct pass *p, int count, const bool divide)
{
    switch (count) {
    case 1: sum_blocks(p, 1, divide); return;
    case 2: sum_blocks(p, 2, divide); return;
    case 3: sum_blocks(p, 3, divide); return;
    case 4: sum_blocks(p, 4, divide); return;
    case 5: sum_blocks(p, 5, divide); return;
    case 6: sum_blocks(p, 6, divide); return;
    case 7: sum_blocks(p, 7, divide); return;
    case 8: sum_blocks(p, 8, divide); return;
    }
}

void reduce_sum_f32_c(void *const targets[], int targets_count, const void *const sources[],
                      int sources_count, size_t elements, uint32_t divisor)
{
    assert(sources_count >= 1 && sources_count <= REDUCE_SOURCES_MAX);
    assert(targets_count >= 1 && targets_count <= REDUCE_TARGETS_MAX);
    const struct pass pass = {targets, targets_count, sources, elements, (float)divisor};
    if (divisor > 1)
        sum_sources(&pass, sources_count, true);
    else
        sum_sources(&pass, sources_count, false);
}
