/* Counts the table memory of one job on one lane. Owns no memory: the caller's functions
 * allocate. */
#include "svc/lane/table/allowance.h"

#include <assert.h>
#include <errno.h>

int allowance_alloc(struct allowance *allowance, size_t bytes, void **ret_memory)
{
    if (allowance->used_bytes > allowance->limit_bytes ||
        bytes > allowance->limit_bytes - allowance->used_bytes) {
        allowance->refused_bytes = allowance->used_bytes + bytes;
        return -EDQUOT;
    }
    allowance->refused_bytes = 0;
    int error = allowance->alloc(allowance->context, bytes, ret_memory);
    if (error < 0)
        return error;
    allowance->used_bytes += bytes;
    return 0;
}

void allowance_free(struct allowance *allowance, void *memory, size_t bytes)
{
    if (!memory)
        return;
    assert(bytes <= allowance->used_bytes);
    allowance->used_bytes -= bytes;
    allowance->free(allowance->context, memory, bytes);
}

uint64_t allowance_wanted_bytes(const struct allowance *allowance)
{
    bool is_short = allowance->used_bytes >= allowance->limit_bytes / 4 * 3;
    return is_short ? ALLOWANCE_STEP_BYTES : 0;
}
