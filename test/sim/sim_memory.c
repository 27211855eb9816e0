/* Wraps the functions of the lanes' arenas (the linker's --wrap): counts allocations, and makes one
 * allocation fail if a test requests this. Works in one thread only. Must change no other result of
 * the arena. */
#include "test/sim/sim_types.h"

#include <assert.h>

struct holding {
    const struct arena *arena;
    size_t blocks, bytes;
};

static struct holding holdings[SIM_LANES_MAX];
static uint64_t allocations, fails_in;

void *__real_arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes);
void *__real_arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes);
void __real_arena_free(struct arena *arena, struct arena_account *account, void *memory);
void *__wrap_arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes);
void *__wrap_arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes);
void __wrap_arena_free(struct arena *arena, struct arena_account *account, void *memory);

void memory_start(void)
{
    for (size_t i = 0; i < SIM_LANES_MAX; i++)
        holdings[i] = (struct holding){0};
    allocations = fails_in = 0;
}

void memory_fail(uint64_t n) { fails_in = n; }

uint64_t memory_allocations(void) { return allocations; }

/* Returns the entry of this arena, or a free entry. */
static struct holding *holding_of(const struct arena *arena)
{
    size_t i = 0;
    while (i < SIM_LANES_MAX && holdings[i].arena && holdings[i].arena != arena)
        i++;
    assert(i < SIM_LANES_MAX);
    holdings[i].arena = arena;
    return &holdings[i];
}

size_t memory_blocks(const struct arena *arena) { return holding_of(arena)->blocks; }
size_t memory_bytes(const struct arena *arena) { return holding_of(arena)->bytes; }

static bool fails_now(void)
{
    allocations++;
    return fails_in > 0 && --fails_in == 0;
}

static void *count(const struct arena *arena, void *memory, size_t bytes)
{
    struct holding *h = holding_of(arena);
    h->blocks += memory != NULL;
    h->bytes += bytes;
    return memory;
}

void *__wrap_arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes)
{
    size_t before = account->bytes;
    void *memory = fails_now() ? NULL : __real_arena_alloc(arena, account, bytes);
    return count(arena, memory, account->bytes - before);
}

void *__wrap_arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes)
{
    size_t before = account->bytes;
    void *memory = fails_now() ? NULL : __real_arena_alloc_aligned(arena, account, bytes);
    return count(arena, memory, account->bytes - before);
}

void __wrap_arena_free(struct arena *arena, struct arena_account *account, void *memory)
{
    struct holding *h = holding_of(arena);
    size_t before = account->bytes;
    __real_arena_free(arena, account, memory);
    h->blocks -= memory != NULL;
    h->bytes -= before - account->bytes;
}
