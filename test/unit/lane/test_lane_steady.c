/* Tests that after its first rounds a lane allocates no memory (A11), neither from its arena nor
 * from the C library. The fabrics of both sides must not allocate memory either. Linked with --wrap
 * for both allocators, so allocations of libraries are not detected. */
#include "svc/lane/memory/arena.h"
#include "svc/lane/round/tracing.h"
#include "test/unit/lane/lane_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORKERS 4
#define WARM_ROUNDS 3
#define ROUNDS 20

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes);
void *__real_arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes);
void *__wrap_arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes);

static const char *kind;
static struct rig rig;
static _Thread_local bool is_counting;
static _Thread_local uint32_t allocations;

void *__wrap_malloc(size_t bytes)
{
    allocations += is_counting;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    allocations += is_counting;
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    allocations += is_counting;
    return __real_realloc(memory, bytes);
}

void *__wrap_arena_alloc(struct arena *arena, struct arena_account *account, size_t bytes)
{
    allocations += is_counting;
    return __real_arena_alloc(arena, account, bytes);
}

void *__wrap_arena_alloc_aligned(struct arena *arena, struct arena_account *account, size_t bytes)
{
    allocations += is_counting;
    return __real_arena_alloc_aligned(arena, account, bytes);
}

static int stop(void **state)
{
    is_counting = false;
    rig_stop(&rig);
    return 0;
}

static bool is_committed(uint32_t pieces, uint64_t round)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        if (rig.workers[rank].commits_count != (int)(pieces * round))
            return false;
    return true;
}

static void run_round(uint32_t pieces, uint64_t elements, uint64_t round, bool is_inline)
{
    for (uint32_t piece = 1; piece <= pieces; piece++)
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            rig_say(&rig, rank,
                    (struct say){.piece = piece,
                                 .word = (uint32_t)(round * pieces + piece),
                                 .round = round,
                                 .elements = elements,
                                 .offset = (piece - 1) * elements * sizeof(float),
                                 .is_inline = is_inline});
    rig_until(&rig, is_committed(pieces, round));
}

static void check_steady(uint32_t pieces, uint64_t elements, bool is_inline)
{
    rig_start_job(&rig, kind, WORKERS, pieces, elements);
    allocations = 0;
    for (uint64_t round = 1; round <= WARM_ROUNDS + ROUNDS; round++) {
        is_counting = round > WARM_ROUNDS;
        run_round(pieces, elements, round, is_inline);
    }
    is_counting = false;
    assert_int_equal(allocations, 0);
}

static void long_tensors_are_summed_without_an_allocation(void **state)
{
    check_steady(1, 600000, false);
}

static void many_short_tensors_are_summed_without_an_allocation(void **state)
{
    check_steady(16, 1000, false);
}

static void inline_tensors_are_summed_without_an_allocation(void **state)
{
    check_steady(16, 1000, strcmp(kind, "ofi") == 0);
}

/* The timeline's ring stores all rounds during the recording, and no rounds afterwards. */
static void recorded_rounds_are_summed_without_an_allocation(void **state)
{
    enum { PIECES = 4, ALL = PIECES * (WARM_ROUNDS + ROUNDS) };
    static struct trace_round rounds[ALL + 1];
    struct tracing t = {.job = RIG_JOB};
    uint64_t since_ns = clock_now_ns();
    assert_int_equal(trace_ring_create(256, since_ns, UINT64_MAX, &t.ring), 0);
    rig_start_job(&rig, kind, WORKERS, PIECES, 1000);
    tracing_begin(rig.lane, &t);
    allocations = 0;
    for (uint64_t round = 1; round <= WARM_ROUNDS + ROUNDS; round++) {
        is_counting = round > WARM_ROUNDS;
        run_round(PIECES, 1000, round, false);
    }
    is_counting = false;
    assert_int_equal(allocations, 0);
    tracing_end(rig.lane, &t);
    run_round(PIECES, 1000, WARM_ROUNDS + ROUNDS + 1, false);
    assert_int_equal(trace_ring_take(t.ring, rounds, ALL + 1), ALL);
    for (size_t i = 0; i < ALL; i++) {
        assert_int_equal(rounds[i].round, i / PIECES + 1);
        assert_int_equal(rounds[i].bytes, 4000);
        assert_int_equal(rounds[i].last, WORKERS - 1);
        assert_in_range(rounds[i].at_ns[TRACE_HEARD], since_ns, clock_now_ns());
        assert_true(trace_round_is_sound(&rounds[i]));
    }
    trace_ring_destroy(t.ring);
}

static void say_all(uint64_t round, uint8_t operation, uint64_t elements)
{
    bool sets = operation == RECORD_BROADCAST;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        rig_say(&rig, rank,
                (struct say){.piece = 1,
                             .word = (uint32_t)round,
                             .round = round,
                             .elements = elements,
                             .operation = operation,
                             .has_no_input = sets && rank > 0,
                             .has_no_output = sets && rank == 0});
    rig_until(&rig, is_committed(1, round));
}

static void parameters_are_updated_without_an_allocation(void **state)
{
    enum { ELEMENTS = 200000 };
    struct lane_piece piece = {.id = 1, .elements = ELEMENTS, .terms = {.rule = UPDATE_ADAM}};
    rig_start(&rig, kind);
    rig_place_piece(&rig, WORKERS, piece, false);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    say_all(1, RECORD_BROADCAST, ELEMENTS);
    allocations = 0;
    for (uint64_t round = 2; round <= WARM_ROUNDS + ROUNDS; round++) {
        is_counting = round > WARM_ROUNDS;
        say_all(round, RECORD_UPDATE, ELEMENTS);
    }
    is_counting = false;
    assert_int_equal(allocations, 0);
}

/* Proves that the cases above would detect an allocation. */
static void an_allocation_would_be_seen(void **state)
{
    rig_start_job(&rig, kind, WORKERS, 1, 16);
    allocations = 0;
    is_counting = true;
    rig_place(&rig, RIG_JOB + 1, WORKERS, 100, 1, 16, false);
    is_counting = false;
    assert_true(allocations > 0);
}

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(long_tensors_are_summed_without_an_allocation, stop),
        cmocka_unit_test_teardown(many_short_tensors_are_summed_without_an_allocation, stop),
        cmocka_unit_test_teardown(inline_tensors_are_summed_without_an_allocation, stop),
        cmocka_unit_test_teardown(recorded_rounds_are_summed_without_an_allocation, stop),
        cmocka_unit_test_teardown(parameters_are_updated_without_an_allocation, stop),
        cmocka_unit_test_teardown(an_allocation_would_be_seen, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
