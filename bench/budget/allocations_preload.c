/* A preloaded library that counts allocations of its process in a file that all such processes map
 * (allocations.h). Replaces allocation functions of the C library and of jemalloc; never allocates
 * memory itself. */
#include "bench/budget/allocations.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
void *mallocx(size_t bytes, int flags); /* functions of jemalloc */
/* Memory for requests of dlsym() during the search for the real functions. */
#define EARLY_BYTES 4096

static struct allocations_row nowhere, *row = &nowhere;
static struct allocations_row *rows;
static char early[EARLY_BYTES];
static size_t early_bytes;
static bool has_started;

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static int (*real_posix_memalign)(void **, size_t, size_t);
static void *(*real_aligned_alloc)(size_t, size_t);
static void *(*real_mallocx)(size_t, int);
static void (*real_free)(void *);

static void count(void) { __atomic_fetch_add(&row->count, 1, __ATOMIC_RELAXED); }

/* Reserves a row for the process. A forked child reserves its own row; after exec() the process
 * keeps its row. Without a free row the counts of the process are lost. */
static void take_row(void)
{
    int32_t mine = (int32_t)getpid();
    row = &nowhere;
    for (int i = 0; rows && i < ALLOCATIONS_ROWS; i++) {
        int32_t holder = 0;
        if (__atomic_compare_exchange_n(&rows[i].pid, &holder, mine, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED) ||
            holder == mine) {
            row = &rows[i];
            return;
        }
    }
}

static void map_rows(void)
{
    const char *path = getenv(ALLOCATIONS_VARIABLE);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, ALLOCATIONS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    rows = at == MAP_FAILED ? NULL : at;
}

static void find(void *at, const char *name)
{
    void *real = dlsym(RTLD_NEXT, name);
    memcpy(at, &real, sizeof real);
}

/* Runs early in a process, but constructors of other libraries may run before. */
__attribute__((constructor)) static void start(void)
{
    if (has_started)
        return;
    has_started = true;
    find(&real_calloc, "calloc");
    find(&real_malloc, "malloc");
    find(&real_realloc, "realloc");
    find(&real_posix_memalign, "posix_memalign");
    find(&real_aligned_alloc, "aligned_alloc");
    find(&real_mallocx, "mallocx");
    find(&real_free, "free");
    map_rows();
    take_row();
    pthread_atfork(NULL, NULL, take_row);
}

static void *take_early(size_t bytes)
{
    size_t whole = (bytes + 15) / 16 * 16;
    if (whole > sizeof early - early_bytes)
        return NULL;
    early_bytes += whole;
    return early + early_bytes - whole;
}

static bool is_early(const void *memory)
{
    return (const char *)memory >= early && (const char *)memory < early + sizeof early;
}

API void *malloc(size_t bytes)
{
    count();
    start();
    return real_malloc ? real_malloc(bytes) : take_early(bytes);
}

API void *calloc(size_t elements, size_t bytes)
{
    count();
    start();
    return real_calloc ? real_calloc(elements, bytes) : take_early(elements * bytes);
}

API void *realloc(void *memory, size_t bytes)
{
    count();
    start();
    if (!is_early(memory))
        return real_realloc(memory, bytes);
    void *moved = real_malloc(bytes);
    if (moved)
        memcpy(moved, memory, bytes < EARLY_BYTES ? bytes : EARLY_BYTES);
    return moved;
}

API int posix_memalign(void **ret_memory, size_t alignment, size_t bytes)
{
    count();
    start();
    return real_posix_memalign(ret_memory, alignment, bytes);
}

API void *aligned_alloc(size_t alignment, size_t bytes)
{
    count();
    start();
    return real_aligned_alloc(alignment, bytes);
}

API void *mallocx(size_t bytes, int flags)
{
    count();
    start();
    return real_mallocx(bytes, flags);
}

API void free(void *memory)
{
    if (!is_early(memory) && real_free)
        real_free(memory);
}
