/* Tests the scheduler without memory. The n-th allocation fails, for every n, until the call
 * succeeds. After a failed event the scheduler must be unchanged. Linked with --wrap, so only the
 * packer's own allocations count. */
#include "test/unit/packer/scheduler_rig.h"

static size_t allocations_left = SIZE_MAX;

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_reallocarray(void *old, size_t count, size_t bytes);
void *__wrap_reallocarray(void *old, size_t count, size_t bytes);

static bool allocation_fails(void)
{
    if (allocations_left == 0)
        return true;
    allocations_left -= allocations_left != SIZE_MAX;
    return false;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return allocation_fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_reallocarray(void *old, size_t count, size_t bytes)
{
    return allocation_fails() ? NULL : __real_reallocarray(old, count, bytes);
}

/* Sends the event until it succeeds. Returns the number of failures. */
static size_t fail_each_allocation(struct rig *rig, struct scheduler_event event)
{
    for (size_t n = 0;; n++) {
        struct scheduler_totals before = scheduler_totals(rig->scheduler);
        allocations_left = n;
        int r = rig_send(rig, event);
        allocations_left = SIZE_MAX;
        if (r == 0)
            return n;
        struct scheduler_totals after = scheduler_totals(rig->scheduler);
        assert_int_equal(r, -ENOMEM);
        assert_memory_equal(&before, &after, sizeof before);
    }
}

static void a_scheduler_is_made_once_there_is_memory(void **state)
{
    struct scheduler_options options = {.slots = 4};
    struct scheduler *scheduler = NULL;
    size_t n = 0;
    for (; !scheduler; n++) {
        allocations_left = n;
        scheduler = scheduler_create(&options);
        allocations_left = SIZE_MAX;
    }
    assert_true(n > 3);
    scheduler_destroy(scheduler);
    scheduler_destroy(NULL);
}

static void a_job_is_taken_once_there_is_memory(void **state)
{
    struct rig rig = rig_new(4);
    struct scheduler_job job = {
        .id = 1, .tenant = 3, .study = 4, .workers_min = 1, .workers_max = 2};
    assert_true(fail_each_allocation(&rig, (struct scheduler_event){.kind = SCHEDULER_SUBMITTED,
                                                                    .submitted = &job}) >= 4);
    rig_expect(&rig, "lanes 1=1, start 1.0 @0, lanes 1=2, start 1.1 @1");
    scheduler_destroy(rig.scheduler);
}

static void a_slot_is_added_once_there_is_memory(void **state)
{
    struct rig rig = rig_new(1);
    rig_submit(&rig, 1, 1, 2);
    assert_true(fail_each_allocation(
                    &rig, (struct scheduler_event){.kind = SCHEDULER_SLOT_FOUND, .slot = 1}) >= 1);
    rig_expect(&rig, "lanes 1=2, start 1.1 @1");
    scheduler_destroy(rig.scheduler);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_scheduler_is_made_once_there_is_memory),
        cmocka_unit_test(a_job_is_taken_once_there_is_memory),
        cmocka_unit_test(a_slot_is_added_once_there_is_memory),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
