/* Lists of cores such as "0-3,8", and arrays of cores. Independent of the topology. */
#ifndef GRADPOOL_CORES_LIST_H
#define GRADPOOL_CORES_LIST_H

#include "svc/host/cores.h"

/* Keeps only the cores whose index is in `list`, in their order, and reduces `count`. Returns 0,
 * -EINVAL or -ENOMEM; after an error the array is unchanged. -EINVAL: `list` is no list of cores,
 * names a core that is not in `cores`, or names a core twice; the text has the cause and the
 * available cores. The cost is at most `count` squared for any list. */
int cores_list_narrow(const char *list, struct core *cores, size_t *count, struct err *err);

/* Writes a list such as "0-1,4", truncated with "..." if the buffer is too small. Returns the
 * buffer. */
const char *cores_list_format(const struct core *cores, size_t count, char *buffer,
                              size_t buffer_bytes);

#endif
