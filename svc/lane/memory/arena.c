/* One jemalloc arena for each lane. Only this file includes jemalloc. Sanitizers have their own
 * allocator, so with ARENA_MALLOC, malloc() and a list replace jemalloc. Accounts are plain
 * counters that only the lane's thread uses. */
#include "svc/lane/memory/arena.h"

#include "svc/base/cleanup.h"
#include "svc/base/list.h"
#include "svc/base/system/populate.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Counters over all accounts. */
struct count {
    size_t bytes, limit_bytes; /* limit_bytes 0: no limit */
    size_t account_limit_bytes;
    int lack; /* error of the last failed allocation, for arena_lack() */
};

/* A block that another thread has allocated in advance. */
struct prepared {
    struct list node;
    void *memory;
    size_t bytes; /* length of the allocation for which the block is prepared */
};

struct preparations {
    pthread_mutex_t lock;
    struct list blocks;
    atomic_size_t count; /* length of `blocks`; while it is 0, the lane does not lock */
};

#ifdef ARENA_MALLOC

#include <sanitizer/asan_interface.h>

/* Header directly before an allocation. */
struct block {
    struct list node;
    void *start;
    size_t bytes;
};

struct arena {
    struct count count;
    struct preparations preparations;
    struct list blocks;
    size_t allocated_bytes; /* atomic, because any thread reads it */
};

static int heap_open(struct arena *arena, const struct cores *cores, size_t position)
{
    list_init(&arena->blocks);
    return 0;
}

static void heap_close(struct arena *arena)
{
    list_for_each_safe (node, &arena->blocks)
        free(list_entry(node, struct block, node)->start);
}

static struct block *block_of(void *memory) { return (struct block *)memory - 1; }

static char *aligned(char *start, size_t alignment)
{
    return (char *)(((uintptr_t)start + alignment - 1) & ~(uintptr_t)(alignment - 1));
}

/* calloc() does not touch long memory and so does not allocate its sanitizer shadow. The memory is
 * aligned here. The bytes before and after the allocation are poisoned. */
static void *heap_alloc(struct arena *arena, size_t bytes, size_t alignment)
{
    size_t more = sizeof(struct block) + alignment;
    char *start = bytes > PTRDIFF_MAX - more ? NULL : calloc(1, bytes + more);
    if (!start)
        return NULL;
    char *memory = aligned(start + sizeof(struct block), alignment);
    struct block *block = block_of(memory);
    ASAN_POISON_MEMORY_REGION(start, (size_t)((char *)block - start));
    ASAN_POISON_MEMORY_REGION(memory + bytes, (size_t)(start + more - memory));
    *block = (struct block){.start = start, .bytes = bytes};
    list_append(&arena->blocks, &block->node);
    __atomic_add_fetch(&arena->allocated_bytes, bytes, __ATOMIC_RELAXED);
    return memory;
}

static size_t heap_bytes(void *memory) { return block_of(memory)->bytes; }
static size_t heap_rounded(size_t bytes, size_t alignment) { return bytes; }

static void heap_free(struct arena *arena, void *memory)
{
    struct block *block = block_of(memory);
    __atomic_sub_fetch(&arena->allocated_bytes, block->bytes, __ATOMIC_RELAXED);
    list_remove(&block->node);
    free(block->start);
}

size_t arena_allocated_bytes(const struct arena *arena)
{
    return __atomic_load_n(&arena->allocated_bytes, __ATOMIC_RELAXED);
}

void arena_library(struct library *ret_row) { *ret_row = (struct library){.name = "jemalloc"}; }

/* Prepares no memory, because with this allocator only the lane's thread may change the list of
 * blocks. */
static void *heap_alloc_whole(struct arena *arena, size_t bytes) { return NULL; }

#else

#include <jemalloc/jemalloc.h>
#include <stdio.h>
#include <string.h>

struct arena {
    extent_hooks_t hooks; /* first member: jemalloc passes its address to the hooks */
    extent_hooks_t *next; /* the original hooks of jemalloc */
    const struct cores *cores;
    size_t position;
    unsigned index;
    struct count count;
    struct preparations preparations;
};

/* Hook that jemalloc calls when an arena grows, which is rare because extents are reused. If the
 * binding to the node fails, the lane's first write to a page determines the node. */
static void *grow(extent_hooks_t *hooks, void *new_address, size_t bytes, size_t alignment,
                  bool *zero, bool *commit, unsigned index)
{
    struct arena *arena = (struct arena *)hooks;
    void *memory =
        arena->next->alloc(arena->next, new_address, bytes, alignment, zero, commit, index);
    if (memory)
        (void)cores_bind_memory(arena->cores, arena->position, memory, bytes);
    return memory;
}

/* Writes the name of a jemalloc control, such as "arena.3.destroy". */
static const char *name_of(const struct arena *arena, const char *format, char buffer[64])
{
    snprintf(buffer, 64, format, arena->index);
    return buffer;
}

static int install_hooks(struct arena *arena)
{
    char name[64];
    extent_hooks_t *own = &arena->hooks;
    size_t bytes = sizeof(arena->next);
    name_of(arena, "arena.%u.extent_hooks", name);
    int error = mallctl(name, &arena->next, &bytes, NULL, 0);
    if (error != 0)
        return -error;
    arena->hooks = *arena->next;
    arena->hooks.alloc = grow;
    return -mallctl(name, NULL, NULL, &own, sizeof(own));
}

static void heap_close(struct arena *arena)
{
    char name[64];
    int error = mallctl(name_of(arena, "arena.%u.destroy", name), NULL, NULL, NULL, 0);
    assert(error == 0);
    (void)error;
}

static int heap_open(struct arena *arena, const struct cores *cores, size_t position)
{
    size_t bytes = sizeof(arena->index);
    arena->cores = cores;
    arena->position = position;
    int error = -mallctl("arenas.create", &arena->index, &bytes, NULL, 0);
    if (error < 0 || !cores)
        return error;
    error = install_hooks(arena);
    if (error < 0)
        heap_close(arena);
    return error;
}

/* Allocates without jemalloc's thread cache, whose memory no account counts. */
static void *heap_alloc(struct arena *arena, size_t bytes, size_t alignment)
{
    return mallocx(bytes, MALLOCX_ARENA(arena->index) | MALLOCX_TCACHE_NONE | MALLOCX_ZERO |
                              MALLOCX_ALIGN(alignment));
}

static size_t heap_bytes(void *memory) { return sallocx(memory, 0); }
static size_t heap_rounded(size_t bytes, size_t alignment)
{
    return nallocx(bytes, MALLOCX_ALIGN(alignment));
}

static void heap_free(struct arena *arena, void *memory) { dallocx(memory, MALLOCX_TCACHE_NONE); }

/* Allocates zeroed memory with its pages. */
static void *heap_alloc_whole(struct arena *arena, size_t bytes)
{
    void *memory = heap_alloc(arena, bytes, (size_t)sysconf(_SC_PAGESIZE));
    if (!memory || populate_warm(memory, heap_bytes(memory)) == 0)
        return memory;
    heap_free(arena, memory);
    return NULL;
}

static size_t statistic(const struct arena *arena, const char *format)
{
    char name[64];
    size_t value = 0, bytes = sizeof(value);
    int error = mallctl(name_of(arena, format, name), &value, &bytes, NULL, 0);
    assert(error == 0);
    (void)error;
    return value;
}

size_t arena_allocated_bytes(const struct arena *arena)
{
    uint64_t epoch = 1;
    mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch));
    return statistic(arena, "stats.arenas.%u.small.allocated") +
           statistic(arena, "stats.arenas.%u.large.allocated");
}

/* Copies the part before the first dash of a version such as "5.3.0-0-g54eaed1...". */
static void copy_version(const char *version, char *ret_text)
{
    snprintf(ret_text, LIBRARY_VERSION_BYTES, "%.*s", (int)strcspn(version, "-"), version);
}

void arena_library(struct library *ret_row)
{
    const char *version = NULL;
    size_t bytes = sizeof version;
    *ret_row = (struct library){.name = "jemalloc"};
    copy_version(JEMALLOC_VERSION, ret_row->built);
    if (mallctl("version", &version, &bytes, NULL, 0) == 0)
        copy_version(version, ret_row->running);
}

#endif

int arena_create(const struct cores *cores, size_t position, struct arena **ret_arena)
{
    _cleanup_free_ struct arena *arena = calloc(1, sizeof(*arena));
    if (!arena)
        return -ENOMEM;
    int error = heap_open(arena, cores, position);
    if (error < 0)
        return error;
    pthread_mutex_init(&arena->preparations.lock, NULL);
    list_init(&arena->preparations.blocks);
    *ret_arena = take_ptr(arena);
    return 0;
}

void arena_destroy(struct arena *arena)
{
    if (!arena)
        return;
    arena_forget_prepared(arena);
    heap_close(arena);
    pthread_mutex_destroy(&arena->preparations.lock);
    free(arena);
}

void arena_set_limit(struct arena *arena, size_t bytes) { arena->count.limit_bytes = bytes; }
size_t arena_counted_bytes(const struct arena *arena) { return arena->count.bytes; }
size_t arena_limit(const struct arena *arena) { return arena->count.limit_bytes; }

void arena_set_account_limit(struct arena *arena, size_t bytes)
{
    arena->count.account_limit_bytes = bytes;
}

size_t arena_account_limit(const struct arena *arena) { return arena->count.account_limit_bytes; }
int arena_lack(const struct arena *arena)
{
    return arena->count.lack ? arena->count.lack : -ENOMEM;
}

static bool fits(size_t held, size_t limit, size_t more)
{
    return limit == 0 || (held < limit && more <= limit - held);
}

static bool has_room(struct count *count, const struct arena_account *account, size_t bytes)
{
    size_t most = account->limit_bytes ? account->limit_bytes : count->account_limit_bytes;
    if (!fits(account->bytes, most, bytes))
        count->lack = -EDQUOT;
    else if (!fits(count->bytes, count->limit_bytes, bytes))
        count->lack = -ENOSPC;
    else
        return true;
    return false;
}

int arena_prepare(struct arena *arena, size_t bytes)
{
    struct prepared *block = calloc(1, sizeof *block);
    void *memory = block ? heap_alloc_whole(arena, bytes) : NULL;
    if (!memory) {
        free(block);
        return -ENOMEM;
    }
    *block = (struct prepared){.memory = memory, .bytes = bytes};
    pthread_mutex_lock(&arena->preparations.lock);
    list_append(&arena->preparations.blocks, &block->node);
    atomic_fetch_add(&arena->preparations.count, 1);
    pthread_mutex_unlock(&arena->preparations.lock);
    return 0;
}

/* jemalloc keeps the pages of freed memory for later allocations. */
void arena_warm(struct arena *arena, size_t bytes)
{
    size_t more = bytes > SIZE_MAX - ARENA_PREPARED_LEAST ? bytes : bytes + ARENA_PREPARED_LEAST;
    void *memory = heap_alloc_whole(arena, more);
    if (memory)
        heap_free(arena, memory);
}

/* Removes a prepared block of `bytes`, or of any length if `bytes` is 0. Returns NULL if there is
 * no such block. */
static void *take_prepared(struct arena *arena, size_t bytes)
{
    struct preparations *all = &arena->preparations;
    void *memory = NULL;
    if (atomic_load_explicit(&all->count, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&all->lock);
    list_for_each_safe (node, &all->blocks) {
        struct prepared *block = list_entry(node, struct prepared, node);
        if (memory || (bytes && block->bytes != bytes))
            continue;
        memory = block->memory;
        list_remove(node);
        free(block);
        atomic_fetch_sub(&all->count, 1);
    }
    pthread_mutex_unlock(&all->lock);
    return memory;
}

void arena_forget_prepared(struct arena *arena)
{
    for (void *memory; (memory = take_prepared(arena, 0));)
        heap_free(arena, memory);
}

static void *alloc_counted(struct arena *arena, struct arena_account *account, size_t bytes,
                           size_t alignment)
{
    if (!has_room(&arena->count, account, bytes))
        return NULL;
    void *memory = bytes ? take_prepared(arena, bytes) : NULL;
    if (!memory)
        memory = heap_alloc(arena, bytes ? bytes : 1, alignment);
    if (!memory)
        arena->count.lack = -ENOMEM;
    /* checks the limit again, because the allocator may have rounded the size up */
    if (memory && !has_room(&arena->count, account, heap_bytes(memory))) {
        heap_free(arena, memory);
        return NULL;
    }
    if (memory) {
        account->bytes += heap_bytes(memory);
        arena->count.bytes += heap_bytes(memory);
    }
    return memory;
}

size_t arena_reserve(struct arena *arena, struct arena_account *account, size_t bytes)
{
    size_t counted = heap_rounded(bytes, (size_t)sysconf(_SC_PAGESIZE));
    if (!has_room(&arena->count, account, counted))
        return 0;
    account->bytes += counted;
    arena->count.bytes += counted;
    return counted;
}

void arena_unreserve(struct arena *arena, struct arena_account *account, size_t counted_bytes)
{
    assert(account->bytes >= counted_bytes);
    account->bytes -= counted_bytes;
    arena->count.bytes -= counted_bytes;
}

void *arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes)
{
    return alloc_counted(arena, account, bytes, _Alignof(max_align_t));
}

void *arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes)
{
    return alloc_counted(arena, account, bytes, (size_t)sysconf(_SC_PAGESIZE));
}

void arena_free(struct arena *arena, struct arena_account *account, void *memory)
{
    if (!memory)
        return;
    size_t bytes = heap_bytes(memory);
    assert(account->bytes >= bytes);
    account->bytes -= bytes;
    arena->count.bytes -= bytes;
    heap_free(arena, memory);
}
