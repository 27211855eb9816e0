/* Tests scaling without memory. The n-th allocation fails, for every n, until the call succeeds.
 * Linked with --wrap, so only the packer's own allocations count. */
#include "test/unit/packer/scale_pool.h"

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

/* Makes one allocation fail in each window until a window decides. Returns the number of failed
 * windows. */
static size_t fail_each_allocation(struct pool *p, enum scale_verb verb)
{
    for (size_t n = 0;; n++) {
        struct scale_decision d = {.verb = SCALE_STOP, .aggregator = 4711};
        p->now_ns += WINDOW_NS;
        allocations_left = n;
        int r = scale_tick(&p->scale, &p->options, &p->seen, p->now_ns, &d);
        allocations_left = SIZE_MAX;
        if (r == 0) {
            assert_int_equal(d.verb, verb);
            p->last = d;
            pool_obey(p);
            return n;
        }
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(d.aggregator, 4711);
    }
}

static struct pool *pool_of(uint32_t lanes, uint64_t lane_ns)
{
    struct pool *p = pool_new(8, 1);
    pool_open(p, lanes);
    for (uint32_t i = 0; i < lanes; i++)
        pool_put(p, i, lane_ns);
    return p;
}

static void lanes_open_once_there_is_memory(void **state)
{
    struct pool *p = pool_new(4, 1);
    assert_true(fail_each_allocation(p, SCALE_OPEN) >= 2);
    pool_free(p);
}

static void a_job_is_relieved_once_there_is_memory(void **state)
{
    struct pool *p = pool_of(3, 30 * MS);
    pool_put(p, 0, 30 * MS);
    p->jobs[0].loss_ppm = 90000;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_true(fail_each_allocation(p, SCALE_RELIEVE) >= 12);
    pool_free(p);
}

static void a_job_is_measured_alone_once_there_is_memory(void **state)
{
    struct pool *p = pool_of(1, 2 * MS);
    pool_put(p, 0, 2 * MS);
    p->jobs[0].wants_alone = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_true(fail_each_allocation(p, SCALE_MEASURE) >= 12);
    pool_free(p);
}

static void a_lane_is_emptied_and_parked_once_there_is_memory(void **state)
{
    struct pool *p = pool_of(2, 5 * MS);
    for (int i = 0; i < 6; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_true(fail_each_allocation(p, SCALE_DRAIN) >= 12);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pool_tick(p), SCALE_NOTHING);
    assert_true(fail_each_allocation(p, SCALE_PARK) >= 2);
    pool_free(p);
}

int main(void)
{
    static const struct CMUnitTest cases[] = {
        cmocka_unit_test(lanes_open_once_there_is_memory),
        cmocka_unit_test(a_job_is_relieved_once_there_is_memory),
        cmocka_unit_test(a_job_is_measured_alone_once_there_is_memory),
        cmocka_unit_test(a_lane_is_emptied_and_parked_once_there_is_memory),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
