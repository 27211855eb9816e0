/* The operation table. Holds no state. */
#include "svc/aggregator/operation.h"

#include "svc/wire/record.h"

#include <stddef.h>

/* What takes one input is the sum of one input. */
static const struct operation operations[] = {
    {RECORD_SUM, "sum", INPUT_ALL, REDUCE_SUM, false, false, false, false},
    {RECORD_MEAN, "mean", INPUT_ALL, REDUCE_SUM, true, false, false, false},
    {RECORD_MIN, "min", INPUT_ALL, REDUCE_MIN, false, false, false, false},
    {RECORD_MAX, "max", INPUT_ALL, REDUCE_MAX, false, false, false, false},
    {RECORD_PRODUCT, "product", INPUT_ALL, REDUCE_PRODUCT, false, false, false, false},
    {RECORD_BROADCAST, "broadcast", INPUT_ROOT, REDUCE_SUM, false, false, false, false},
    {RECORD_SEND, "send", INPUT_ROOT, REDUCE_SUM, false, false, false, false},
    {RECORD_GATHER, "gather", INPUT_ALL, REDUCE_SUM, false, false, true, false},
    {RECORD_ALL_TO_ALL, "all-to-all", INPUT_ALL, REDUCE_SUM, false, true, true, false},
    {RECORD_REDUCE_SCATTER, "reduce-scatter", INPUT_ALL, REDUCE_SUM, false, true, false, false},
    {RECORD_UPDATE, "update", INPUT_ALL, REDUCE_SUM, true, false, false, true},
    {RECORD_BARRIER, "barrier", INPUT_NONE, REDUCE_SUM, false, false, false, false},
};

const struct operation *operation_find(uint8_t code)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (operations[i].code == code)
            return &operations[i];
    }
    return NULL;
}

static uint32_t sources(const struct operation *operation, uint32_t members)
{
    return operation->collects ? members : 1;
}

uint32_t operation_steps(const struct operation *operation, uint32_t members)
{
    return sources(operation, members) * (operation->splits ? members : 1);
}

uint32_t operation_source(const struct operation *operation, uint32_t members, uint32_t step)
{
    return operation->collects ? step % members : OPERATION_EVERYBODY;
}

uint32_t operation_target(const struct operation *operation, uint32_t members, uint32_t step)
{
    return operation->splits ? step / sources(operation, members) : OPERATION_EVERYBODY;
}
