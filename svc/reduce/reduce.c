/* The table of what can be reduced: element types, their names, the kernel for each operation.
 * Holds no arithmetic; that is one file for each instruction set (R5). */
#include "svc/reduce/reduce.h"

#include "svc/reduce/reduce_kernels.h"

static const struct {
    const char *name;
    size_t bytes;
    reduce_fn sum;
} dtypes[] = {
    [REDUCE_F32] = {"f32", sizeof(float), reduce_sum_f32_c},
};

/* Unsigned, so that any value from a peer is only a number out of range. */
static int is_known(unsigned dtype)
{
    return dtype < sizeof(dtypes) / sizeof(dtypes[0]) && dtypes[dtype].name;
}

reduce_fn reduce_pick(enum reduce_operation operation, enum reduce_dtype dtype)
{
    if (operation != REDUCE_SUM || !is_known((unsigned)dtype))
        return NULL;
    return dtypes[dtype].sum;
}

size_t reduce_element_bytes(unsigned dtype) { return is_known(dtype) ? dtypes[dtype].bytes : 0; }

const char *reduce_dtype_name(unsigned dtype) { return is_known(dtype) ? dtypes[dtype].name : "?"; }
