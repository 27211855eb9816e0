/* The table of what can be reduced: element types, their names, the kernel for each operation.
 * Holds no arithmetic; that is one file for each instruction set (R5). */
#include "svc/reduce/reduce.h"

#include "svc/reduce/reduce_kernels.h"

static const struct {
    const char *name;
    size_t bytes;
    enum reduce_dtype accumulator;
    bool divides;
} dtypes[REDUCE_DTYPES] = {
    [REDUCE_F32] = {"f32", 4, REDUCE_F32, true},  [REDUCE_F64] = {"f64", 8, REDUCE_F64, true},
    [REDUCE_F16] = {"f16", 2, REDUCE_F32, true},  [REDUCE_BF16] = {"bf16", 2, REDUCE_F32, true},
    [REDUCE_I32] = {"i32", 4, REDUCE_I32, false}, [REDUCE_I64] = {"i64", 8, REDUCE_I64, false},
};

/* Unsigned, so that any value from a peer is only a number out of range. */
static bool is_known(unsigned dtype) { return dtype > 0 && dtype < REDUCE_DTYPES; }

static const struct reduce_kernels *kernels_of(enum reduce_set set)
{
    switch (set) {
    case REDUCE_BEST:
    case REDUCE_C: return &reduce_kernels_c;
    default: return NULL;
    }
}

reduce_fn reduce_pick(enum reduce_set set, enum reduce_operation operation, enum reduce_dtype from,
                      enum reduce_dtype to)
{
    const struct reduce_kernels *kernels = kernels_of(set);
    if (!kernels || !is_known((unsigned)from) || (unsigned)operation >= REDUCE_OPERATIONS)
        return NULL;
    if (from == to)
        return kernels->fold[operation][from][REDUCE_SAME];
    if (to == dtypes[from].accumulator)
        return kernels->fold[operation][from][REDUCE_ACCUMULATED];
    return NULL;
}

size_t reduce_element_bytes(unsigned dtype) { return is_known(dtype) ? dtypes[dtype].bytes : 0; }

const char *reduce_dtype_name(unsigned dtype) { return is_known(dtype) ? dtypes[dtype].name : "?"; }

enum reduce_dtype reduce_accumulator(unsigned dtype)
{
    return is_known(dtype) ? dtypes[dtype].accumulator : (enum reduce_dtype)0;
}

bool reduce_divides(unsigned dtype) { return is_known(dtype) && dtypes[dtype].divides; }
