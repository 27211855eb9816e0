/* Table of operations, which never changes. */
#include "svc/lane/chunk/operation.h"

#include "svc/wire/record.h"

#include <stddef.h>

/* An operation with only one input, such as a broadcast, is computed as a sum with one input. */
static const struct operation operations[] = {
    {.code = RECORD_SUM, .name = "sum", .inputs = INPUT_ALL, .reduce = REDUCE_SUM},
    {.code = RECORD_MEAN,
     .name = "mean",
     .inputs = INPUT_ALL,
     .reduce = REDUCE_SUM,
     .divides = true},
    {.code = RECORD_MIN, .name = "min", .inputs = INPUT_ALL, .reduce = REDUCE_MIN},
    {.code = RECORD_MAX, .name = "max", .inputs = INPUT_ALL, .reduce = REDUCE_MAX},
    {.code = RECORD_PRODUCT, .name = "product", .inputs = INPUT_ALL, .reduce = REDUCE_PRODUCT},
    {.code = RECORD_BROADCAST, .name = "broadcast", .inputs = INPUT_ROOT, .reduce = REDUCE_SUM},
    {.code = RECORD_SEND, .name = "send", .inputs = INPUT_ROOT, .reduce = REDUCE_SUM},
    {.code = RECORD_GATHER,
     .name = "gather",
     .inputs = INPUT_ALL,
     .reduce = REDUCE_SUM,
     .collects = true},
    {.code = RECORD_ALL_TO_ALL,
     .name = "all-to-all",
     .inputs = INPUT_ALL,
     .reduce = REDUCE_SUM,
     .splits = true,
     .collects = true},
    {.code = RECORD_REDUCE_SCATTER,
     .name = "reduce-scatter",
     .inputs = INPUT_ALL,
     .reduce = REDUCE_SUM,
     .splits = true},
    {.code = RECORD_UPDATE,
     .name = "update",
     .inputs = INPUT_ALL,
     .reduce = REDUCE_SUM,
     .divides = true,
     .updates = true},
    {.code = RECORD_SAVE,
     .name = "save",
     .inputs = INPUT_NONE,
     .reduce = REDUCE_SUM,
     .saves = true},
    {.code = RECORD_RESTORE,
     .name = "restore",
     .inputs = INPUT_ROOT,
     .reduce = REDUCE_SUM,
     .restores = true},
    {.code = RECORD_BARRIER, .name = "barrier", .inputs = INPUT_NONE, .reduce = REDUCE_SUM},
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
