/* Reads limits of control groups, from this process's group up to the root group. Owns nothing. A
 * missing file means no limit. */
#include "svc/base/system/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 4096
#define FOLDER_BYTES (2 * PATH_MAX)
/* version 1 writes the largest possible number for "no limit" */
#define NO_LIMIT_BYTES (UINT64_C(1) << 60)

/* Reads the limits of one controller from the group's `folder`, in either version. */
struct controller {
    const char *name;
    void (*look)(const char *folder, bool is_unified, void *ret);
    void *ret;
};

/* Reads one line of a file. Returns false if there is no such file. */
static bool read_line(const char *folder, const char *name, char *line, size_t line_bytes)
{
    char path[FOLDER_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool is_read = file && fgets(line, (int)line_bytes, file);
    if (file)
        fclose(file);
    return is_read;
}

/* Reads the limits of all groups, from the end of the path up to the root. In a container the path
 * may be missing below `mount`, and `mount` itself is the container's own group. */
static void look_along(const char *mount, char *path, bool is_unified, const struct controller *c)
{
    for (;;) {
        char folder[FOLDER_BYTES];
        snprintf(folder, sizeof folder, "%.*s%s", PATH_MAX, mount, path);
        c->look(folder, is_unified, c->ret);
        char *slash = strrchr(path, '/');
        if (!slash || !*path)
            return;
        *slash = '\0';
    }
}

static bool is_of_list(const char *list, size_t bytes, const char *name)
{
    size_t name_bytes = strlen(name);
    for (size_t at = 0; at + name_bytes <= bytes; at++) {
        bool begins = at == 0 || list[at - 1] == ',';
        bool ends = at + name_bytes == bytes || list[at + name_bytes] == ',';
        if (begins && ends && strncmp(list + at, name, name_bytes) == 0)
            return true;
    }
    return false;
}

/* Parses a line such as "0::/a/b" or "4:cpu,cpuacct:/a/b". */
static void look_at_line(const char *root, char *line, const struct controller *c)
{
    char mount[PATH_MAX];
    line[strcspn(line, "\n")] = '\0';
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
    if (!path)
        return;
    bool is_unified = path == list + 1;
    if (!is_unified && !is_of_list(list + 1, (size_t)(path - list - 1), c->name))
        return;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, is_unified ? "" : "/",
             is_unified ? "" : c->name);
    look_along(mount, path + 1, is_unified, c);
}

static void look_at_all(const char *root, const struct controller *c)
{
    char path[PATH_MAX], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        look_at_line(root, line, c);
    if (file)
        fclose(file);
}

/* ---- CPU time ---- */

/* Parses "50000 100000" or "max 100000". Version 1 stores the two numbers in two files, with -1 for
 * no limit. */
static double cores_of(const char *folder, bool is_unified)
{
    char line[128];
    double quota = 0, period = 0;
    if (is_unified && read_line(folder, "cpu.max", line, sizeof line)) {
        if (sscanf(line, "%lf %lf", &quota, &period) != 2)
            return 0;
    } else if (!is_unified && read_line(folder, "cpu.cfs_quota_us", line, sizeof line)) {
        quota = strtod(line, NULL);
        if (read_line(folder, "cpu.cfs_period_us", line, sizeof line))
            period = strtod(line, NULL);
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

static void look_at_cores(const char *folder, bool is_unified, void *ret)
{
    double *least = ret, limit = cores_of(folder, is_unified);
    if (limit > 0 && (*least <= 0 || limit < *least))
        *least = limit;
}

double cgroup_cores(const char *root)
{
    double least = 0;
    look_at_all(root, &(struct controller){"cpu", look_at_cores, &least});
    return least;
}

/* ---- memory ---- */

/* Reads a number; "max" means no limit. */
static uint64_t number_of(const char *folder, const char *name)
{
    char line[64];
    return read_line(folder, name, line, sizeof line) ? strtoull(line, NULL, 10) : 0;
}

/* Returns the bytes of cached files, which the kernel can drop and read again. The kernel's count
 * includes shared memory, so the bytes of shared memory are subtracted. */
static uint64_t file_bytes(const char *folder, bool is_unified)
{
    char path[FOLDER_BYTES + 64], line[128];
    uint64_t files = 0, shared = 0;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        (void)sscanf(line, is_unified ? "file %lu" : "total_cache %lu", &files);
        (void)sscanf(line, is_unified ? "shmem %lu" : "total_shmem %lu", &shared);
    }
    if (file)
        fclose(file);
    return files > shared ? files - shared : 0;
}

static void look_at_memory(const char *folder, bool is_unified, void *ret)
{
    struct cgroup_memory *least = ret;
    const char *name = is_unified ? "memory.max" : "memory.limit_in_bytes";
    uint64_t limit = number_of(folder, name);
    if (limit == 0 || limit >= NO_LIMIT_BYTES)
        return;
    uint64_t used = number_of(folder, is_unified ? "memory.current" : "memory.usage_in_bytes");
    uint64_t files = file_bytes(folder, is_unified);
    used -= files < used ? files : used;
    uint64_t left = used < limit ? limit - used : 0;
    if (least->limit_bytes > 0 && least->left_bytes <= left)
        return;
    least->limit_bytes = limit;
    least->left_bytes = left;
    snprintf(least->file, sizeof least->file, "%.180s/%s", folder, name);
}

struct cgroup_memory cgroup_memory(const char *root)
{
    struct cgroup_memory least = {.left_bytes = UINT64_MAX};
    look_at_all(root, &(struct controller){"memory", look_at_memory, &least});
    return least;
}
