/* CPU time and memory that control groups (version 1 and 2) allow this process: the smallest limit
 * of its own group and of all parent groups. `root` is "", except in tests, which create their own
 * /proc and /sys below it. */
#ifndef GRADPOOL_BASE_SYSTEM_CGROUP_H
#define GRADPOOL_BASE_SYSTEM_CGROUP_H

#include <stdint.h>

#define CGROUP_FILE_BYTES 256

/* Returns the CPU time in cores; 0: no limit. */
double cgroup_cores(const char *root);

struct cgroup_memory {
    uint64_t limit_bytes; /* 0: no limit */
    /* memory that is left below the limit, if the kernel reclaims all memory that it can */
    uint64_t left_bytes;
    char file[CGROUP_FILE_BYTES]; /* path of the file with the limit; may be truncated */
};

/* Returns the values of the group with the least memory left. Reads files, which takes tens of
 * microseconds. */
struct cgroup_memory cgroup_memory(const char *root);
/* Returns the part of a limit that jobs may use. The rest is for other memory of the service. */
static inline uint64_t cgroup_memory_for_jobs(uint64_t limit_bytes)
{
    return limit_bytes - limit_bytes / 8;
}
/* Returns whether the process may allocate `bytes` more without being killed by the kernel. */
static inline int cgroup_memory_fits(const struct cgroup_memory *memory, uint64_t bytes)
{
    uint64_t kept = memory->limit_bytes / 16;
    return memory->limit_bytes == 0 ||
           (memory->left_bytes > kept && bytes <= memory->left_bytes - kept);
}

#endif
