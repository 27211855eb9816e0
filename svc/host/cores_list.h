/* Lists of cores as people write them, "0-3,8", over an array of cores. Knows no topology. */
#ifndef GRADPOOL_CORES_LIST_H
#define GRADPOOL_CORES_LIST_H

#include "svc/host/cores.h"

/* Keeps the cores whose index is in `list`, in their order, and lowers `count`. Errors: -EINVAL
 * (not a list, a core that is not in `cores`, a core named twice; the text has the cause and the
 * present cores), -ENOMEM; the array is then unchanged. Cost: bounded by `count` squared, for any
 * numbers in `list`. */
int cores_list_narrow(const char *list, struct core *cores, size_t *count, struct err *err);

/* "0-1,4"; cut with "..." when the buffer is too small. Returns the buffer. */
const char *cores_list_format(const struct core *cores, size_t count, char *buffer,
                              size_t buffer_bytes);

#endif
