/* Tests the ring of a timeline with concurrent reads. Each record is read once and in order.
 * Records without room are counted. A record that is overwritten during a read is dropped. */
#include "svc/wire/trace_ring.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#define SINCE 100
#define UNTIL 1000000000
#define MANY 200000

static struct trace_round round_of(uint64_t number)
{
    struct trace_round r = {.round = number, .bytes = ~number, .thing = (uint32_t)number};
    for (uint64_t i = 0; i < TRACE_STEPS; i++)
        r.at_ns[i] = SINCE + number + i;
    return r;
}

static struct trace_ring *ring_of(uint32_t rounds)
{
    struct trace_ring *ring = NULL;
    assert_int_equal(trace_ring_create(rounds, SINCE, UNTIL, &ring), 0);
    return ring;
}

static void records_leave_in_order_and_the_rest_is_counted(void **state)
{
    struct trace_ring *ring = ring_of(4);
    struct trace_round taken[8];
    for (uint64_t i = 0; i < 6; i++) {
        struct trace_round r = round_of(i);
        trace_ring_put(ring, &r);
    }
    assert_int_equal(trace_ring_waiting(ring), 4);
    assert_int_equal(trace_ring_dropped(ring), 2);
    assert_int_equal(trace_ring_take(ring, taken, 3), 3);
    struct trace_round next = round_of(6);
    trace_ring_put(ring, &next);
    assert_int_equal(trace_ring_take(ring, taken + 3, 5), 2);
    for (uint64_t i = 0; i < 5; i++) {
        struct trace_round r = round_of(i < 4 ? i : 6);
        assert_memory_equal(&taken[i], &r, sizeof r);
    }
    assert_int_equal(trace_ring_take(ring, taken, 8), 0);
    assert_int_equal(trace_ring_dropped(ring), 2);
    trace_ring_destroy(ring);
}

static void a_partly_recorded_round_is_not_read(void **state)
{
    struct trace_ring *ring = ring_of(4);
    struct trace_round early = round_of(1), late = round_of(2), stale = round_of(3);
    early.at_ns[0] = SINCE - 1;
    late.at_ns[TRACE_STEPS - 1] = UNTIL + 1;
    stale.at_ns[2] = 0; /* step 2 of this record belongs to another recording, or is missing */
    trace_ring_put(ring, &early);
    trace_ring_put(ring, &late);
    trace_ring_put(ring, &stale);
    assert_int_equal(trace_ring_waiting(ring), 0);
    assert_int_equal(trace_ring_dropped(ring), 0);
    trace_ring_destroy(ring);
}

static void a_ring_of_no_power_of_two_is_refused(void **state)
{
    struct trace_ring *ring = NULL;
    assert_int_equal(trace_ring_create(0, SINCE, UNTIL, &ring), -EINVAL);
    assert_int_equal(trace_ring_create(12, SINCE, UNTIL, &ring), -EINVAL);
    assert_null(ring);
}

static void *put_many(void *context)
{
    for (uint64_t i = 0; i < MANY; i++) {
        struct trace_round r = round_of(i);
        trace_ring_put(context, &r);
    }
    return NULL;
}

/* Reads until each of MANY records has been read or counted as dropped. */
static uint64_t take_many(struct trace_ring *ring)
{
    struct trace_round taken[64];
    uint64_t count = 0, next = 0;
    while (count + trace_ring_dropped(ring) < MANY) {
        size_t got = trace_ring_take(ring, taken, 64);
        for (size_t i = 0; i < got; i++) {
            struct trace_round r = round_of(taken[i].round);
            assert_true(taken[i].round >= next);
            assert_memory_equal(&taken[i], &r, sizeof r);
            next = taken[i].round + 1;
        }
        count += got;
    }
    return count;
}

static void one_thread_puts_while_another_takes(void **state)
{
    struct trace_ring *ring = ring_of(256);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, put_many, ring), 0);
    uint64_t count = take_many(ring);
    pthread_join(writer, NULL);
    assert_true(count > 0);
    assert_int_equal(trace_ring_waiting(ring), 0);
    trace_ring_destroy(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_leave_in_order_and_the_rest_is_counted),
        cmocka_unit_test(a_partly_recorded_round_is_not_read),
        cmocka_unit_test(a_ring_of_no_power_of_two_is_refused),
        cmocka_unit_test(one_thread_puts_while_another_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
