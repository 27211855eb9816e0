/* Tests the order in which entries of a queue get turns of a lane (README of svc/lane, A77). The
 * test sets the time of each turn. */
#include "svc/lane/turn/line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define AHEAD_NS 100

static struct line line;
static struct line_entry entries[3];

static int start(uint64_t ahead_ns)
{
    line_init(&line, ahead_ns);
    for (int i = 0; i < 3; i++) {
        entries[i] = (struct line_entry){.used_ns = 0};
        list_init(&entries[i].link);
    }
    return 0;
}

/* Gives a turn to the next entry, which uses its `cost_ns` and then requests another turn. Returns
 * the number of the entry. */
static int turn(const uint64_t cost_ns[3])
{
    struct line_entry *entry = line_next(&line);
    assert_non_null(entry);
    entry->used_ns += cost_ns[entry - entries];
    line_join_again(&line, entry);
    return (int)(entry - entries);
}

static void join_all(void)
{
    for (int i = 0; i < 3; i++)
        line_join(&line, &entries[i]);
}

static void an_empty_line_has_no_next(void **state)
{
    start(AHEAD_NS);
    assert_true(line_is_empty(&line));
    assert_null(line_next(&line));
}

static void equal_entries_take_turns(void **state)
{
    static const uint64_t cost_ns[3] = {10, 10, 10};
    start(AHEAD_NS);
    join_all();
    for (int i = 0; i < 300; i++)
        assert_int_equal(turn(cost_ns), i % 3);
}

static void without_a_bound_time_does_not_count(void **state)
{
    static const uint64_t cost_ns[3] = {1000, 1, 1};
    start(0);
    join_all();
    for (int i = 0; i < 300; i++)
        assert_int_equal(turn(cost_ns), i % 3);
}

static void an_entry_with_long_turns_gets_fewer_turns(void **state)
{
    static const uint64_t cost_ns[3] = {300, 30, 10};
    uint64_t used_ns[3] = {0};
    start(AHEAD_NS);
    join_all();
    for (int i = 0; i < 10000; i++) {
        int who = turn(cost_ns);
        used_ns[who] += cost_ns[who];
    }
    for (int i = 1; i < 3; i++) {
        int64_t apart_ns = (int64_t)used_ns[0] - (int64_t)used_ns[i];
        assert_in_range(apart_ns + 400, 0, 800);
    }
}

static void an_entry_alone_never_waits(void **state)
{
    static const uint64_t cost_ns[3] = {1000};
    start(AHEAD_NS);
    line_join(&line, &entries[0]);
    for (int i = 0; i < 100; i++)
        assert_int_equal(turn(cost_ns), 0);
}

/* Two entries always have work. A third entry sometimes needs a short turn. */
static void a_light_entry_is_next_when_it_arrives(void **state)
{
    static const uint64_t cost_ns[3] = {90, 90, 10};
    start(AHEAD_NS);
    line_join(&line, &entries[0]);
    line_join(&line, &entries[1]);
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < 5; k++)
            assert_int_not_equal(turn(cost_ns), 2);
        line_join(&line, &entries[2]);
        assert_ptr_equal(line_next(&line), &entries[2]);
        entries[2].used_ns += cost_ns[2];
    }
}

/* After a pause an entry has priority, but not for longer than an entry that always uses little
 * time. */
static void an_entry_that_pauses_gets_no_more_time_than_others(void **state)
{
    static const uint64_t cost_ns[3] = {90, 90, 90};
    int turns[3] = {0};
    start(AHEAD_NS);
    join_all();
    for (int i = 0; i < 3000; i++) {
        struct line_entry *entry = line_next(&line);
        int who = (int)(entry - entries);
        entry->used_ns += cost_ns[who];
        turns[who]++;
        if (who == 2)
            line_join(&line, entry);
        else
            line_join_again(&line, entry);
    }
    assert_in_range(turns[2], 900, 1100);
}

static void idle_time_earns_no_credit(void **state)
{
    static const uint64_t cost_ns[3] = {50, 50, 50};
    int in_a_row = 0;
    start(AHEAD_NS);
    line_join(&line, &entries[0]);
    for (int i = 0; i < 1000; i++)
        turn(cost_ns);
    line_join(&line, &entries[1]);
    while (turn(cost_ns) == 1)
        in_a_row++;
    assert_in_range(in_a_row, 1, 4);
}

/* For an entry the lane also counts the time of its work outside turns, such as polls. The counted
 * time has a limit. */
static void a_debt_is_paid_within_bounds(void **state)
{
    static const uint64_t cost_ns[3] = {50, 50, 50};
    int turns = 0;
    start(AHEAD_NS);
    line_join(&line, &entries[0]);
    entries[1].used_ns = 1000000;
    line_join(&line, &entries[1]);
    while (turn(cost_ns) == 0)
        turns++;
    assert_in_range(turns, 10, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_line_has_no_next),
        cmocka_unit_test(equal_entries_take_turns),
        cmocka_unit_test(without_a_bound_time_does_not_count),
        cmocka_unit_test(an_entry_with_long_turns_gets_fewer_turns),
        cmocka_unit_test(an_entry_alone_never_waits),
        cmocka_unit_test(a_light_entry_is_next_when_it_arrives),
        cmocka_unit_test(an_entry_that_pauses_gets_no_more_time_than_others),
        cmocka_unit_test(idle_time_earns_no_credit),
        cmocka_unit_test(a_debt_is_paid_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
