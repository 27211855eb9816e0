/* Converts f16 and bf16 to f32 and back, with the rounding of a sum (R7). Owns nothing. A
 * conversion is a reduction of one source, so every instruction set has it, with the same bits as
 * the kernels (R5). */
#include "svc/reduce/reduce.h"

#define BLOCK 1024

bool reduce_converts(unsigned from, unsigned to)
{
    bool widens = reduce_accumulator(from) == to, narrows = reduce_accumulator(to) == from;
    return reduce_element_bytes(from) && reduce_element_bytes(to) && (widens || narrows);
}

static void widen(unsigned from, unsigned to, const void *source, void *target, size_t elements)
{
    const struct reduce_pass pass = {.targets = &target,
                                     .targets_count = 1,
                                     .sources = &source,
                                     .sources_count = 1,
                                     .elements = elements};
    reduce_pick(REDUCE_BEST, REDUCE_SUM, from, to)(&pass);
}

/* Runs the last pass of a sum with `source` as partial result and -0 as its only source. Adding -0
 * changes no value, including both zeros. */
static void narrow(unsigned to, const float *source, uint16_t *target, size_t elements)
{
    uint16_t zeros[BLOCK];
    const void *addend = zeros;
    reduce_fn sum = reduce_pick(REDUCE_BEST, REDUCE_SUM, to, to);
    for (size_t i = 0; i < BLOCK; i++)
        zeros[i] = 0x8000;
    for (size_t at = 0; at < elements; at += BLOCK) {
        void *to_here = target + at;
        sum(&(struct reduce_pass){.targets = &to_here,
                                  .targets_count = 1,
                                  .sources = &addend,
                                  .sources_count = 1,
                                  .partial = source + at,
                                  .elements = elements - at < BLOCK ? elements - at : BLOCK});
    }
}

void reduce_convert(unsigned from, unsigned to, const void *source, void *target, size_t elements)
{
    if (reduce_accumulator(from) == to)
        widen(from, to, source, target, elements);
    else
        narrow(to, source, target, elements);
}
