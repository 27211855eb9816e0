/* Tests the packer without memory. The n-th allocation fails, for every n, until the call succeeds.
 * Linked with --wrap, so only the packer's own allocations count. */
#include "test/unit/packer/packer_fixture.h"

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

/* Returns the number of failures before the call succeeds. */
static size_t fail_each_allocation(struct fixture *f, const char *policy)
{
    for (size_t n = 0;; n++) {
        struct packer_plan plan = {NULL, 4711};
        int r;

        f->request.policy = policy;
        allocations_left = n;
        r = packer_place(&f->request, &plan, f->reason, sizeof(f->reason));
        allocations_left = SIZE_MAX;
        if (r == 0) {
            packer_plan_fini(&plan);
            return n;
        }
        assert_int_equal(r, -ENOMEM);
        assert_non_null(strstr(f->reason, "no memory"));
        assert_null(plan.pieces);
        assert_int_equal(plan.pieces_count, 4711);
    }
}

static void every_failed_allocation_is_an_error_that_leaves_nothing(void **state)
{
    struct fixture *f = fixture_new(4, 100);

    for (size_t i = 0; i < 100; i++)
        f->tensors[i].elements = i * 20000;
    for (const char *const *p = packer_policies(); *p; p++)
        /* one allocation is for the lanes, and two are for the plan, which grows */
        assert_true(fail_each_allocation(f, *p) >= 3);
    fixture_free(f);
}

static void the_same_holds_for_a_measured_job_under_a_loss_limit(void **state)
{
    static const struct packer_resident resident = {.lane_ns = 1, .timing = {.period_ns = 9}};
    struct fixture *f = fixture_new(4, 100);

    for (size_t i = 0; i < 100; i++)
        f->tensors[i].elements = f->tensors[i].lane_ns = i * 20000;
    f->lanes[3].residents = &resident;
    f->lanes[3].residents_count = 1;
    f->request.timing.period_ns = 1000000000;
    for (const char *const *p = packer_policies(); *p; p++)
        if (packer_losses(*p, NULL, 0, NULL) == 0)
            assert_true(fail_each_allocation(f, *p) >= 8);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failed_allocation_is_an_error_that_leaves_nothing),
        cmocka_unit_test(the_same_holds_for_a_measured_job_under_a_loss_limit),
    };

    return cmocka_run_group_tests_name("packer faults", tests, NULL, NULL);
}
