/* The operation table. Holds no state. */
#include "svc/aggregator/operation.h"

#include "svc/wire/record.h"

#include <stddef.h>

static const struct operation operations[] = {
    {RECORD_SUM, "sum", INPUT_ALL, REDUCE_SUM, false},
    {RECORD_MEAN, "mean", INPUT_ALL, REDUCE_SUM, true},
    {RECORD_BROADCAST, "broadcast", INPUT_ROOT, REDUCE_SUM, false}, /* the sum of one input */
    {RECORD_BARRIER, "barrier", INPUT_NONE, REDUCE_SUM, false},
};

const struct operation *operation_find(uint8_t code)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (operations[i].code == code)
            return &operations[i];
    }
    return NULL;
}
