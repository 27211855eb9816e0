/* Tests the memory of a lane: its own accounts must equal the allocator's numbers. */
#include "svc/lane/memory/arena.h"
#include "test/lib/extent.h"

#include <errno.h>
#include <pthread.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define PIECES 4000
#define ACCOUNTS 5

static struct arena *new_arena(void)
{
    struct arena *arena = NULL;
    assert_int_equal(arena_create(NULL, 0, &arena), 0);
    assert_non_null(arena);
    return arena;
}

static void assert_within_5_percent(size_t accounts, size_t allocated)
{
    size_t apart = accounts > allocated ? accounts - allocated : allocated - accounts;
    if (apart * 20 > allocated)
        fail_msg("accounts say %zu bytes, the allocator %zu", accounts, allocated);
}

/* Returns a random size. The size is usually small, and sometimes as large as a slot. */
static size_t any_size(void)
{
    int scale = (int)(random() % 100);
    if (scale < 70)
        return (size_t)random() % 512;
    if (scale < 99)
        return (size_t)random() % 65536;
    return (size_t)random() % (1 << 20);
}

static bool is_zero(const void *memory, size_t bytes)
{
    const uint8_t *p = memory;
    return bytes == 0 || (p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
}

static size_t sum_of(const struct arena_account *accounts)
{
    size_t bytes = 0;
    for (int i = 0; i < ACCOUNTS; i++)
        bytes += accounts[i].bytes;
    return bytes;
}

static void accounts_add_up_to_what_is_allocated(void **state)
{
    unsigned seed = 20240609;
    print_message("# seed %u\n", seed);
    srandom(seed);
    struct arena *arena = new_arena();
    struct arena_account accounts[ACCOUNTS] = {0};
    static void *piece[PIECES];
    memset(piece, 0, sizeof(piece));
    for (int step = 0; step < (int)extent(4 * PIECES, PIECES, 4 * PIECES); step++) {
        int i = (int)(random() % PIECES);
        struct arena_account *account = &accounts[i % ACCOUNTS];
        size_t bytes = any_size();
        arena_free(arena, account, piece[i]);
        piece[i] = step % 50 ? arena_alloc(arena, account, bytes)
                             : arena_alloc_aligned(arena, account, bytes);
        assert_non_null(piece[i]);
        assert_true(is_zero(piece[i], bytes));
        memset(piece[i], 0xa5, bytes);
        if (step % 1000 == 999)
            assert_within_5_percent(sum_of(accounts), arena_allocated_bytes(arena));
    }
    assert_true(sum_of(accounts) > 1 << 20);
    for (int i = 0; i < PIECES; i++)
        arena_free(arena, &accounts[i % ACCOUNTS], piece[i]);
    for (int i = 0; i < ACCOUNTS; i++)
        assert_int_equal(accounts[i].bytes, 0);
    assert_int_equal(arena_allocated_bytes(arena), 0);
    arena_destroy(arena);
}

static void an_account_has_at_least_the_requested_bytes(void **state)
{
    struct arena *arena = new_arena();
    for (size_t bytes = 0; bytes < 5000; bytes += 7) {
        struct arena_account account = {0};
        void *memory = arena_alloc(arena, &account, bytes);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % _Alignof(max_align_t), 0);
        assert_true(account.bytes >= bytes && account.bytes > 0);
        arena_free(arena, &account, memory);
        assert_int_equal(account.bytes, 0);
    }
    arena_destroy(arena);
}

static void slots_lie_on_pages_and_are_zeroed_again(void **state)
{
    struct arena *arena = new_arena();
    struct arena_account account = {0};
    size_t bytes = 3 << 20;
    for (int i = 0; i < 8; i++) {
        char *slots = arena_alloc_aligned(arena, &account, bytes);
        assert_non_null(slots);
        assert_int_equal((uintptr_t)slots % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
        assert_true(is_zero(slots, bytes));
        memset(slots, i + 1, bytes);
        arena_free(arena, &account, slots);
    }
    assert_int_equal(account.bytes, 0);
    arena_destroy(arena);
}

static void arenas_do_not_count_each_others_memory(void **state)
{
    struct arena *one = new_arena(), *two = new_arena();
    struct arena_account of_one = {0}, of_two = {0};
    assert_non_null(arena_alloc(one, &of_one, 1 << 20));
    assert_non_null(arena_alloc(two, &of_two, 100));
    assert_int_equal(arena_allocated_bytes(one), of_one.bytes);
    assert_int_equal(arena_allocated_bytes(two), of_two.bytes);
    arena_destroy(one);
    assert_int_equal(arena_allocated_bytes(two), of_two.bytes);
    arena_destroy(two);
}

static size_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void the_end_of_the_arena_frees_all_memory(void **state)
{
    size_t before = resident_bytes();
    uint32_t rounds = extent(400, 200, 400);
    for (uint32_t round = 0; round < rounds; round++) {
        struct arena *arena = new_arena();
        struct arena_account account = {0};
        for (int i = 0; i < 64; i++)
            assert_non_null(arena_alloc(arena, &account, (size_t)(i + 1) * 1000));
        char *large = arena_alloc_aligned(arena, &account, 4 << 20);
        assert_non_null(large);
        memset(large, 1, 4 << 20);
        arena_destroy(arena);
    }
    /* each arena has used and freed 4 MiB; a sanitizer may keep less than half of this memory */
    assert_true(resident_bytes() < before + ((size_t)rounds << 21));
}

static void a_failed_allocation_changes_no_account(void **state)
{
    struct arena *arena = new_arena();
    struct arena_account account = {0};
    assert_null(arena_alloc(arena, &account, SIZE_MAX / 2));
    assert_null(arena_alloc_aligned(arena, &account, SIZE_MAX / 2));
    assert_null(arena_alloc(arena, &account, SIZE_MAX));
    arena_free(arena, &account, NULL);
    assert_int_equal(account.bytes, 0);
    arena_destroy(arena);
}

static void an_arena_bound_to_a_core_counts_the_same(void **state)
{
    struct cores *cores;
    assert_int_equal(cores_create(NULL, &cores, NULL), 0);
    for (size_t position = 0; position < cores_count(cores); position++) {
        struct arena *arena;
        struct arena_account account = {0};
        assert_int_equal(arena_create(cores, position, &arena), 0);
        char *slots = arena_alloc_aligned(arena, &account, 8 << 20);
        assert_non_null(slots);
        assert_true(is_zero(slots, 8 << 20));
        assert_non_null(arena_alloc(arena, &account, 10));
        assert_int_equal(arena_allocated_bytes(arena), account.bytes);
        arena_destroy(arena);
    }
    cores_destroy(cores);
}

struct watch {
    struct arena *arena;
    bool stop;
    size_t most_bytes;
};

static void *watch_from_another_thread(void *argument)
{
    struct watch *w = argument;
    do {
        size_t bytes = arena_allocated_bytes(w->arena);
        if (bytes > w->most_bytes)
            w->most_bytes = bytes;
    } while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE));
    return NULL;
}

static void any_thread_may_read_the_size_of_an_arena(void **state)
{
    struct watch w = {.arena = new_arena()};
    struct arena_account account = {0};
    pthread_t thread;
    void *kept = arena_alloc(w.arena, &account, 1000);
    assert_int_equal(pthread_create(&thread, NULL, watch_from_another_thread, &w), 0);
    for (int i = 0, most = (int)extent(20000, 2000, 20000); i < most; i++)
        arena_free(w.arena, &account, arena_alloc(w.arena, &account, (size_t)i));
    __atomic_store_n(&w.stop, true, __ATOMIC_RELEASE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_in_range(w.most_bytes, 1000, 1 << 20);
    arena_free(w.arena, &account, kept);
    arena_destroy(w.arena);
}

static void destroying_nothing_leaves_other_arenas_alone(void **state)
{
    struct arena *arena = new_arena();
    struct arena_account account = {0};
    char *memory = arena_alloc(arena, &account, 1000);
    assert_non_null(memory);
    memset(memory, 7, 1000);
    arena_destroy(NULL);
    assert_int_equal(arena_allocated_bytes(arena), account.bytes);
    assert_int_equal(memory[0] + memory[999], 14);
    arena_free(arena, &account, memory);
    assert_int_equal(arena_allocated_bytes(arena), 0);
    arena_destroy(arena);
}

#ifdef __SANITIZE_ADDRESS__
static void accesses_beyond_the_requested_bytes_are_detected(void **state)
{
    struct arena *arena = new_arena();
    for (size_t bytes = 1; bytes < 5000; bytes += 7) {
        struct arena_account account = {0};
        char *memory = bytes % 2 ? arena_alloc(arena, &account, bytes)
                                 : arena_alloc_aligned(arena, &account, bytes);
        assert_null(__asan_region_is_poisoned(memory, bytes));
        assert_true(__asan_address_is_poisoned(memory + bytes));
        memory[bytes - 1] = 1;
        arena_free(arena, &account, memory);
        assert_true(__asan_address_is_poisoned(memory));
    }
    arena_destroy(arena);
}
#endif

static size_t pages_there(void *memory, size_t bytes)
{
    static unsigned char is_there[1024];
    size_t there = 0, pages = bytes / (size_t)sysconf(_SC_PAGESIZE);
    assert_true(pages <= sizeof is_there);
    assert_int_equal(mincore(memory, bytes, is_there), 0);
    for (size_t i = 0; i < pages; i++)
        there += is_there[i] & 1;
    return there;
}

static void prepared_memory_is_zeroed_whole_and_the_next_of_its_size(void **state)
{
    enum { BYTES = 3 << 20 };
    struct arena *arena = new_arena();
    struct arena_account account = {0};
    char *used = arena_alloc(arena, &account, BYTES);
    memset(used, 1, BYTES);
    arena_free(arena, &account, used);
    if (arena_prepare(arena, BYTES) == 0) { /* this call fails in builds in which malloc() replaces
                                             * the arena */
        assert_int_equal(account.bytes, 0);
        assert_int_equal(arena_counted_bytes(arena), 0);
        char *other = arena_alloc(arena, &account, BYTES + 8192);
        char *memory = arena_alloc_aligned(arena, &account, BYTES);
        assert_int_equal(pages_there(memory, BYTES), BYTES / sysconf(_SC_PAGESIZE));
        assert_true(is_zero(memory, BYTES));
        assert_int_equal(arena_prepare(arena, BYTES), 0);
        arena_free(arena, &account, other);
        arena_free(arena, &account, memory);
        arena_forget_prepared(arena);
        assert_int_equal(account.bytes, 0);
        assert_int_equal(arena_allocated_bytes(arena), 0);
        assert_int_equal(arena_prepare(arena, BYTES), 0); /* the end of the arena frees the prepared
                                                           * memory */
    }
    arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounts_add_up_to_what_is_allocated),
        cmocka_unit_test(an_account_has_at_least_the_requested_bytes),
        cmocka_unit_test(slots_lie_on_pages_and_are_zeroed_again),
        cmocka_unit_test(arenas_do_not_count_each_others_memory),
        cmocka_unit_test(the_end_of_the_arena_frees_all_memory),
        cmocka_unit_test(a_failed_allocation_changes_no_account),
        cmocka_unit_test(an_arena_bound_to_a_core_counts_the_same),
        cmocka_unit_test(any_thread_may_read_the_size_of_an_arena),
        cmocka_unit_test(destroying_nothing_leaves_other_arenas_alone),
        cmocka_unit_test(prepared_memory_is_zeroed_whole_and_the_next_of_its_size),
#ifdef __SANITIZE_ADDRESS__
        cmocka_unit_test(accesses_beyond_the_requested_bytes_are_detected),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
