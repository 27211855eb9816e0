/* Owns the table of counters, with one row for each preloaded process (allocations_preload.c). */
#include "bench/budget/allocations.h"

#include "bench/lib/host.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIBRARY "libgradpool-bench-allocations.so"

static struct allocations_row *rows;

static bool map_rows(const char *path)
{
    FILE *file = fopen(path, "r+e");
    void *at =
        file ? mmap(NULL, ALLOCATIONS_BYTES, PROT_READ, MAP_SHARED, fileno(file), 0) : MAP_FAILED;
    if (file)
        fclose(file);
    rows = at == MAP_FAILED ? NULL : at;
    return rows != NULL;
}

/* Makes the table in a memory file, which exists as long as this process. Other processes open this
 * file through /proc. */
static bool make_rows(void)
{
    char path[64];
    int fd = memfd_create("allocations", 0);
    if (fd < 0 || ftruncate(fd, ALLOCATIONS_BYTES) < 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    return setenv(ALLOCATIONS_VARIABLE, path, 1) == 0;
}

static void start_anew(const char *library, const char *command, int argc, char **argv)
{
    char self[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    char **arguments = calloc((size_t)argc + 2, sizeof *arguments);
    if (bytes > 0 && arguments && make_rows() && setenv("LD_PRELOAD", library, 1) == 0) {
        self[bytes] = 0;
        arguments[0] = self;
        arguments[1] = (char *)command;
        for (int i = 1; i < argc; i++)
            arguments[i + 1] = argv[i];
        execv(self, arguments);
        unsetenv("LD_PRELOAD");
    }
    unsetenv(ALLOCATIONS_VARIABLE);
    free(arguments);
}

bool allocations_counted(const char *command, int argc, char **argv)
{
    char library[PATH_MAX];
    const char *path = getenv(ALLOCATIONS_VARIABLE);
    if (path)
        return map_rows(path);
    if (process_find_beside(LIBRARY, library, sizeof library) == 0)
        start_anew(library, command, argc, argv);
    return false;
}

uint64_t allocations_of(pid_t pid)
{
    for (int i = 0; rows && i < ALLOCATIONS_ROWS; i++)
        if (__atomic_load_n(&rows[i].pid, __ATOMIC_RELAXED) == pid)
            return __atomic_load_n(&rows[i].count, __ATOMIC_RELAXED);
    return 0;
}
