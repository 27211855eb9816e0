/* Table of operations: how a round computes results from inputs. A new operation is a new row.
 *
 * A round has steps. Each step reduces the inputs of one member or of all members to one block, and
 * sends the block to one member or to all members. An operation whose inputs and results are not
 * divided into blocks has one step. */
#ifndef GRADPOOL_LANE_CHUNK_OPERATION_H
#define GRADPOOL_LANE_CHUNK_OPERATION_H

#include "svc/reduce/reduce.h"

#include <stdbool.h>
#include <stdint.h>

enum operation_inputs { INPUT_NONE, INPUT_ROOT, INPUT_ALL };

struct operation {
    uint8_t code; /* a value of enum record_operation */
    const char *name;
    enum operation_inputs inputs;
    enum reduce_operation reduce;
    bool divides; /* the sum is divided once, at the end, by the number of inputs */
    /* an input consists of one block for each member, and each member receives its own block of
     * every input */
    bool splits;
    bool collects; /* a result consists of one block from each member */
    bool updates;  /* the result is the updated parameters */
    bool saves;    /* a result consists of one block for each array of the state */
    /* an input consists of one block for each array of the state; the result is the first block,
     * the parameters */
    bool restores;
};

/* Returns the row of the operation, or NULL if the code is unknown. */
const struct operation *operation_find(uint8_t code);

#define OPERATION_EVERYBODY UINT32_MAX

uint32_t operation_steps(const struct operation *operation, uint32_t members);
/* operation_source() returns the member whose input the step uses. operation_target() returns the
 * member that receives the step's block. Both return an index among the members, or
 * OPERATION_EVERYBODY for all members. */
uint32_t operation_source(const struct operation *operation, uint32_t members, uint32_t step);
uint32_t operation_target(const struct operation *operation, uint32_t members, uint32_t step);

/* Returns whether the operation combines the inputs of all members into one result for all of
 * them. */
static inline bool operation_is_reduction(const struct operation *operation)
{
    return operation->inputs == INPUT_ALL && !operation->splits && !operation->collects;
}

#endif
