/* Lists of cores such as "0-3,8", as people write them, and arrays of cores. Knows nothing about
 * the topology. */
#ifndef GRADPOOL_CORES_LIST_H
#define GRADPOOL_CORES_LIST_H

#include "svc/host/cores.h"

/* Keeps the cores whose index is in `list`, in their order, and reduces `count`. Errors, after
 * which the array is unchanged: -EINVAL (not a list, a core that is not in `cores`, a core that is
 * named twice; the text has the cause and the present cores), -ENOMEM. The cost is bounded by
 * `count` squared, whatever numbers `list` contains. */
int cores_list_narrow(const char *list, struct core *cores, size_t *count, struct err *err);

/* Writes a list such as "0-1,4"; it is cut with "..." if the buffer is too small. Returns the
 * buffer. */
const char *cores_list_format(const struct core *cores, size_t count, char *buffer,
                              size_t buffer_bytes);

#endif
