/* Computes and reads the gradients of elastic jobs. */
#include "bench/faults/worker/pushes.h"

#include "bench/lib/gradient.h"

#include <math.h>
#include <string.h>

#define COMINGS_MAX 1024
#define COUNTS_MAX (1 << 22)

void pushes_draw(uint64_t seed, uint32_t rank, struct ledger_push push, float *ret_values)
{
    const struct gradient g = {seed, push.coming, push.count};
    gradient_fill(&g, rank, ret_values, PUSH_ELEMENTS);
    memset(ret_values, 0, PUSH_FIRST * sizeof *ret_values);
    ret_values[2 * rank] = (float)push.coming;
    ret_values[2 * rank + 1] = (float)push.count;
}

uint32_t pushes_draw_all(uint64_t seed, const struct pushes *pushes, float *memory,
                         const void *ret_gradients[LEDGER_RANKS])
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < LEDGER_RANKS; rank++) {
        float *values = memory + (size_t)count * PUSH_ELEMENTS;
        if (pushes->of[rank].count == 0)
            continue;
        pushes_draw(seed, rank, pushes->of[rank], values);
        ret_gradients[count++] = values;
    }
    return count;
}

static bool is_number(double number, double limit)
{
    return number >= 0 && number < limit && number == floor(number);
}

bool pushes_read(const double numbers[PUSH_END], struct pushes *ret_pushes)
{
    for (uint32_t rank = 0; rank < LEDGER_RANKS; rank++) {
        double coming = numbers[2 * rank], count = numbers[2 * rank + 1];
        if (!is_number(coming, COMINGS_MAX) || !is_number(count, COUNTS_MAX) ||
            (coming > 0) != (count > 0))
            return false;
        ret_pushes->of[rank] = (struct ledger_push){(uint32_t)coming, (uint32_t)count};
    }
    return true;
}
