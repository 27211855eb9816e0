/* Which cores this process may use, and binding to them. The only module that knows hwloc.
 *
 * A lane is a physical core: SMT siblings are left alone. Only PUs that both the cgroup's cpuset
 * and the process's affinity mask allow are counted. HWLOC_SYNTHETIC describes another machine, for
 * planning tests: binding is then a no-op. */
#ifndef GRADPOOL_HOST_CORES_H
#define GRADPOOL_HOST_CORES_H

#include "svc/base/err.h"
#include "svc/base/library.h"

#include <stddef.h>
#include <stdint.h>

struct cores;

struct core {
    uint32_t index;             /* hwloc logical index of the core */
    uint32_t pu;                /* operating-system index of the PU a thread is bound to */
    int32_t numa;               /* operating-system index of its NUMA node; -1: unknown */
    uint64_t numa_memory_bytes; /* memory of that node; 0: unknown */
    uint64_t cache_bytes;       /* last-level cache, which other cores may share; 0: unknown */
};

/* Discovers (about 3 ms). `list`: "0-3,8" narrows to these core indices (NULL: all); a core that is
 * not ours is -EINVAL, naming it and the cores there are. -ENOENT: none left. */
int cores_create(const char *list, struct cores **ret_cores, struct err *err);
void cores_destroy(struct cores *c);

size_t cores_count(const struct cores *c);
/* Memory of all NUMA nodes that this process may use; 0: unknown. */
uint64_t cores_memory_bytes(const struct cores *c);
/* By position 0 .. count-1, in order of NUMA node, then core. */
struct core cores_at(const struct cores *c, size_t position);

/* "0-1,4" of positions [first, first+count) into buffer, the form cores_create() takes. */
const char *cores_format(const struct cores *c, size_t first, size_t count, char *buffer,
                         size_t buffer_bytes);

/* Binds the calling thread, and its future memory to the core's node. Errors leave the thread as it
 * was; log them and go on: -EPERM, -EINVAL, -ENOTSUP (a synthetic machine). */
int cores_bind_thread(const struct cores *c, size_t position);
/* Binds an address range to the core's NUMA node (best effort; 0 when there is one node only). */
int cores_bind_memory(const struct cores *c, size_t position, void *base, size_t bytes);

/* Versions of hwloc's interface; hwloc reports no other at run time. */
void cores_library(struct library *ret_row);

#endif
