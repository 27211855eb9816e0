/* Memory that control groups grant this process, of version 1 and 2: the least of its group and of
 * all above it. `root`: "" but for tests, which make their own /proc and /sys below it. */
#ifndef GRADPOOL_BASE_SYSTEM_CGROUP_H
#define GRADPOOL_BASE_SYSTEM_CGROUP_H

#include <stdint.h>

#define CGROUP_FILE_BYTES 256

/* CPU time, in cores; 0: no limit. */
double cgroup_cores(const char *root);

struct cgroup_memory {
    uint64_t limit_bytes; /* 0: none */
    uint64_t left_bytes;  /* rest of the limit, after reclaiming all that can be reclaimed */
    char file[CGROUP_FILE_BYTES]; /* file that has the limit; may be cut */
};

/* The group that has the least left. Reads files: tens of microseconds. */
struct cgroup_memory cgroup_memory(const char *root);
/* The part of a limit for jobs: the rest is for the service's other memory. */
static inline uint64_t cgroup_memory_for_jobs(uint64_t limit_bytes)
{
    return limit_bytes - limit_bytes / 8;
}
/* True when `bytes` more may be allocated without the kernel killing a process for it. */
static inline int cgroup_memory_fits(const struct cgroup_memory *memory, uint64_t bytes)
{
    uint64_t kept = memory->limit_bytes / 16;
    return memory->limit_bytes == 0 ||
           (memory->left_bytes > kept && bytes <= memory->left_bytes - kept);
}

#endif
