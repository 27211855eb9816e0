/* Finds the cores that this process may use, and binds threads to them. Only this module uses
 * hwloc.
 *
 * A lane runs on a physical core; the other PUs (SMT siblings) of the core are not used. A PU is
 * usable only if both the cgroup's cpuset and the process's affinity mask allow it. HWLOC_SYNTHETIC
 * describes another machine for planning and tests; binding then does nothing. */
#ifndef GRADPOOL_HOST_CORES_H
#define GRADPOOL_HOST_CORES_H

#include "svc/base/err.h"
#include "svc/base/library.h"

#include <stddef.h>
#include <stdint.h>

struct cores;

struct core {
    uint32_t index;             /* hwloc's logical index of the core */
    uint32_t pu;                /* operating system's index of the PU to which threads are bound */
    int32_t numa;               /* operating system's index of the NUMA node; -1: unknown */
    uint64_t numa_memory_bytes; /* memory of that node; 0: unknown */
    /* size of the last-level cache, possibly shared with other cores; 0: unknown */
    uint64_t cache_bytes;
};

/* Finds the cores (takes about 3 ms). `list` selects cores by index, such as "0-3,8" (NULL: all).
 * Returns 0, -EINVAL if a core in the list may not be used (the text names this core and the usable
 * cores), or -ENOENT if no core is left. */
int cores_create(const char *list, struct cores **ret_cores, struct err *err);
void cores_destroy(struct cores *c);

size_t cores_count(const struct cores *c);
/* Returns the memory of all NUMA nodes that this process may use; 0: unknown. */
uint64_t cores_memory_bytes(const struct cores *c);
/* Returns the core at a position from 0 to count-1. Cores are ordered by NUMA node, then by
 * index. */
struct core cores_at(const struct cores *c, size_t position);

/* Writes the cores at positions [first, first+count) as a list such as "0-1,4", in the syntax of
 * cores_create(). Returns `buffer`. */
const char *cores_format(const struct cores *c, size_t first, size_t count, char *buffer,
                         size_t buffer_bytes);

/* Binds the calling thread to the core, and its future memory to the core's node. Returns 0,
 * -EPERM, -EINVAL or -ENOTSUP (a synthetic machine). After an error the thread is unchanged;
 * callers log the error and continue. */
int cores_bind_thread(const struct cores *c, size_t position);
/* Binds a range of memory to the core's NUMA node. Returns 0 or a negative errno, which may be
 * ignored. Does nothing if there is only one node. */
int cores_bind_memory(const struct cores *c, size_t position, void *base, size_t bytes);

/* Writes the versions of hwloc's interface, at build time and at run time. hwloc has no function
 * for its full version. */
void cores_library(struct library *ret_row);

#endif
