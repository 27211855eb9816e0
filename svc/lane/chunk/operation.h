/* The operation table: how a round makes results of its inputs. A new operation is a new row.
 *
 * A round has steps. In a step some inputs are reduced to one block, which some members get. Where
 * neither inputs nor results consist of blocks there is one step: all inputs, all members. */
#ifndef GRADPOOL_LANE_CHUNK_OPERATION_H
#define GRADPOOL_LANE_CHUNK_OPERATION_H

#include "svc/reduce/reduce.h"

#include <stdbool.h>
#include <stdint.h>

enum operation_inputs { INPUT_NONE, INPUT_ROOT, INPUT_ALL };

struct operation {
    uint8_t code; /* enum record_operation */
    const char *name;
    enum operation_inputs inputs;
    enum reduce_operation reduce;
    bool divides;  /* the result is divided by the number of inputs, once, at the end */
    bool splits;   /* an input has a block for each member, which only that member gets */
    bool collects; /* a result has a block of each member */
    bool updates;  /* the result is the updated parameters */
    bool saves;    /* a result has a block of each array of the state */
    /* an input has a block of each array, and the result is the first: the parameters */
    bool restores;
};

/* NULL: no such row. */
const struct operation *operation_find(uint8_t code);

#define OPERATION_EVERYBODY UINT32_MAX

uint32_t operation_steps(const struct operation *operation, uint32_t members);
/* The member whose input a step takes, and the member that gets its block: places among the
 * members, or OPERATION_EVERYBODY. */
uint32_t operation_source(const struct operation *operation, uint32_t members, uint32_t step);
uint32_t operation_target(const struct operation *operation, uint32_t members, uint32_t step);

/* True for operations that reduce one input of each member to one result, the same for all. */
static inline bool operation_is_reduction(const struct operation *operation)
{
    return operation->inputs == INPUT_ALL && !operation->splits && !operation->collects;
}

#endif
