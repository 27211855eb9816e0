/* Tests that after the first rounds nothing is allocated between a push and the end of its wait
 * (L5). Linked with --wrap for the allocator. Only allocations of the test's thread count, because
 * the scripted service allocates in its own thread. */
#include "test/unit/client/client_fixture.h"

#include "client/lib/job/tensor.h"
#include "test/lib/kept_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define ELEMENTS 30000
#define TENSORS 8

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

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

static gp_item items[WORKERS][TENSORS];

static void run_groups(void)
{
    gp_request *q[WORKERS];
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_push_pull_group(jobs[rank], items[rank], TENSORS, GP_MEAN, &q[rank]));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
}

static void prepare(bool is_lent)
{
    static float foreign[WORKERS][TENSORS][ELEMENTS];
    gp_tensor *t[WORKERS];
    char name[] = "w0";
    script_lock(&rig);
    rig.pieces_per_tensor = 3;
    rig.lanes_used = 2;
    script_unlock(&rig);
    for (int i = 0; i < TENSORS; i++) {
        name[1] = (char)('0' + i);
        declare(name, ELEMENTS, t);
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            float *values = is_lent ? lent(rank, ELEMENTS) : foreign[rank][i];
            items[rank][i] = (gp_item){t[rank], values, values};
        }
    }
    run_groups();
}

/* Checks that nothing was allocated. A client that logs a late round may allocate memory for the
 * warning. In this test a round is late only on a host without free cores. */
static void check_steady(void)
{
    kept_log_begin();
    allocations = 0;
    is_counting = true;
    for (int round = 0; round < 10; round++)
        run_groups();
    is_counting = false;
    assert_true(allocations <= kept_log_count(" has waited for "));
}

static void nothing_is_allocated_for_foreign_memory(void **state)
{
    prepare(false);
    check_steady();
}

static void nothing_is_allocated_for_lent_memory(void **state)
{
    prepare(true);
    check_steady();
}

/* Also checks that each rank has recorded all its rounds, with the time at which each copy
 * ended. */
static void nothing_is_allocated_while_a_timeline_is_recorded(void **state)
{
    static struct trace_round rounds[16 * TENSORS];
    Gradpool__Wire__TimelineTake take = GRADPOOL__WIRE__TIMELINE_TAKE__INIT;
    prepare(false);
    take.timeline = 1;
    take.left_ns = 60 * NS_PER_S;
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        recorder_take(jobs[rank], &take);
    check_steady();
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        size_t count = trace_ring_take(jobs[rank]->recorder.ring, rounds, 16 * TENSORS);
        assert_int_equal(count, 10 * TENSORS);
        for (size_t i = 0; i < count; i++) {
            assert_in_range(rounds[i].round, 2, 11);
            assert_int_equal(rounds[i].bytes, ELEMENTS * sizeof(float));
            assert_true(rounds[i].at_ns[TRACE_DONE] > rounds[i].at_ns[TRACE_COPYING]);
        }
    }
    take.left_ns = 0;
    recorder_take(jobs[0], &take);
    assert_null(jobs[0]->trace);
    assert_null(jobs[0]->recorder.ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_allocated_for_foreign_memory, fixture_start,
                                        fixture_stop),
        cmocka_unit_test_setup_teardown(nothing_is_allocated_for_lent_memory, fixture_start,
                                        fixture_stop),
        cmocka_unit_test_setup_teardown(nothing_is_allocated_while_a_timeline_is_recorded,
                                        fixture_start, fixture_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
