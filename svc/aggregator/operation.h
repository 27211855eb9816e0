/* The operation table: what a round does with its inputs. A new operation is a new row. */
#ifndef GRADPOOL_AGGREGATOR_OPERATION_H
#define GRADPOOL_AGGREGATOR_OPERATION_H

#include "svc/reduce/reduce.h"

#include <stdbool.h>
#include <stdint.h>

enum operation_inputs { INPUT_NONE, INPUT_ROOT, INPUT_ALL };

struct operation {
    uint8_t code; /* enum record_operation */
    const char *name;
    enum operation_inputs inputs;
    enum reduce_operation reduce;
    bool divides; /* by the number of inputs, once, at the end */
};

/* NULL: no such row. */
const struct operation *operation_find(uint8_t code);

#endif
