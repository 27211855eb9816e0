/* Tests the order in which the coordinator serves the connections of its peers. Operators are
 * first. The connection with the least used time follows. A connection over its budget has to wait.
 * The test sets CPU time and clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/base/clock.h"
#include "svc/coordinator/loop/turns.h"

#include <string.h>

#define MEMBERS_MAX 64
#define US NS_PER_US
#define MS NS_PER_MS

static uint64_t now_ns, cpu_ns;
uint64_t __wrap_clock_now_ns(void);
uint64_t __wrap_clock_thread_cpu_ns(void);
uint64_t __wrap_clock_now_ns(void) { return now_ns; }
uint64_t __wrap_clock_thread_cpu_ns(void) { return cpu_ns; }

/* A connection. Each turn uses `cost_ns`. With `is_endless` the connection requests its next turn
 * at once. */
struct member {
    struct turn turn;
    uint64_t cost_ns;
    bool is_endless;
    unsigned taken;
};

static struct turns turns;
static struct member members[MEMBERS_MAX];
static struct party one, other, operators, aggregators;

static void spend(uint64_t ns)
{
    now_ns += ns;
    cpu_ns += ns;
}

static void take(struct turn *turn)
{
    struct member *m = container_of(turn, struct member, turn);
    m->taken++;
    spend(m->cost_ns);
    if (m->is_endless)
        turn_wait(&turns, turn);
}

static int setup(void **state)
{
    now_ns = 1000 * NS_PER_S;
    memset(members, 0, sizeof members);
    turns_init(&turns);
    party_init(&one, PARTY_OTHERS, 25);
    party_init(&other, PARTY_OTHERS, 25);
    party_init(&operators, PARTY_OPERATORS, 50);
    party_init(&aggregators, PARTY_AGGREGATORS, 100);
    return 0;
}

static struct member *add(int i, struct party *party, uint64_t cost_ns, bool is_endless)
{
    members[i].cost_ns = cost_ns;
    members[i].is_endless = is_endless;
    turn_init(&members[i].turn, party, take);
    turn_wait(&turns, &members[i].turn);
    return &members[i];
}

/* Runs turns for `for_ns`. Advances the clock while no turn is due. */
static void run(uint64_t for_ns)
{
    for (uint64_t until_ns = now_ns + for_ns; now_ns < until_ns;) {
        uint64_t due_ns = turns_due_ns(&turns, now_ns);
        if (due_ns == UINT64_MAX)
            return;
        now_ns = due_ns > now_ns ? due_ns : now_ns;
        turns_take(&turns, now_ns);
    }
}

/* Returns how long the member waits for its next turn, starting now. */
static uint64_t waits_ns(struct member *m)
{
    uint64_t began_ns = now_ns, cost_ns = m->cost_ns;
    unsigned before = m->taken;
    turn_wait(&turns, &m->turn);
    while (m->taken == before)
        run(1);
    return now_ns - began_ns - cost_ns;
}

static void many_members_of_one_party_delay_no_member_of_another(void **state)
{
    for (int i = 0; i < 60; i++)
        add(i, &one, 300 * US, true);
    run(NS_PER_S);
    struct member *victim = add(60, &other, 100 * US, false);
    for (int i = 0; i < 20; i++)
        assert_true(waits_ns(victim) <= 300 * US);
}

static void a_connection_with_little_used_time_precedes_busy_ones_of_its_party(void **state)
{
    for (int i = 0; i < 60; i++)
        add(i, &one, 300 * US, true);
    run(2 * NS_PER_S);
    struct member *victim = add(60, &one, 100 * US, false);
    for (int i = 0; i < 20; i++)
        assert_true(waits_ns(victim) <= 300 * US);
}

static void a_party_above_its_budget_gets_no_turn_while_others_wait(void **state)
{
    struct member *dear = add(0, &one, 400 * MS, true);
    run(2 * NS_PER_S);
    struct member *victim = add(1, &other, 100 * US, false);
    waits_ns(victim); /* a started turn is completed */
    unsigned before = dear->taken;
    for (int i = 0; i < 20; i++) {
        now_ns += 40 * MS; /* time of a round trip to the peer's host */
        assert_int_equal(waits_ns(victim), 0);
    }
    assert_int_equal(dear->taken, before);
    run(2 * NS_PER_S); /* no other member requests a turn */
    assert_true(dear->taken > before + 3);
}

static void a_party_above_its_budget_is_served_when_no_other_waits(void **state)
{
    struct member *dear = add(0, &one, 400 * MS, true), *busy = add(1, &other, 100 * US, false);
    run(NS_PER_S);
    unsigned before = dear->taken;
    /* for ten seconds at least one member is always about to request a turn */
    for (int i = 0; i < 1000; i++) {
        now_ns += 10 * MS;
        turn_wait(&turns, &busy->turn);
        while (turns_due_ns(&turns, now_ns) == 0)
            turns_take(&turns, now_ns);
    }
    assert_true(dear->taken - before >= 5); /* about six turns fit into a quarter of the time */
}

static void operators_go_first_within_their_budget_and_aggregators_always(void **state)
{
    add(0, &one, 100 * US, false);
    struct member *chief = add(1, &operators, 100 * US, false);
    turns_take(&turns, now_ns);
    assert_int_equal(chief->taken, 1);
    chief->is_endless = true;
    chief->cost_ns = 50 * MS;
    turn_wait(&turns, &chief->turn);
    run(2 * NS_PER_S);
    struct member *victim = add(2, &other, 100 * US, false);
    /* at this point the operator has exceeded its budget */
    assert_true(waits_ns(victim) <= 500 * MS);
    struct member *lane = add(3, &aggregators, 100 * US, true);
    for (int i = 0; i < 100; i++) {
        turns_take(&turns, now_ns);
        assert_int_equal(lane->taken, i + 1);
    }
}

static void the_charged_party_may_change_during_a_turn(void **state)
{
    struct member *first = add(0, &one, 0, false), *second = add(1, &other, 0, false);
    turns_bill(&turns, &first->turn);
    spend(3 * MS);
    struct turn *payer = turns_bill(&turns, &second->turn);
    assert_ptr_equal(payer, &first->turn);
    spend(5 * MS);
    turns_bill(&turns, payer);
    spend(1 * MS);
    turns_bill(&turns, NULL);
    spend(7 * MS);
    assert_int_equal(first->turn.cpu_ns, 4 * MS);
    assert_int_equal(one.cpu_ns, 4 * MS);
    assert_int_equal(second->turn.cpu_ns, 5 * MS);
    assert_int_equal(other.cpu_ns, 5 * MS);
}

static void a_removed_entry_leaves_no_turn_and_no_charge(void **state)
{
    struct member *gone = add(0, &one, 0, false);
    turns_bill(&turns, &gone->turn);
    turn_fini(&turns, &gone->turn);
    assert_int_equal(turns_due_ns(&turns, now_ns), UINT64_MAX);
    assert_null(turns_bill(&turns, NULL));
    struct member *moved = add(1, &one, 0, false);
    turn_join(&turns, &moved->turn, &other);
    run(1);
    assert_int_equal(moved->taken, 1);
}

#define CASE(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(many_members_of_one_party_delay_no_member_of_another),
        CASE(a_connection_with_little_used_time_precedes_busy_ones_of_its_party),
        CASE(a_party_above_its_budget_gets_no_turn_while_others_wait),
        CASE(a_party_above_its_budget_is_served_when_no_other_waits),
        CASE(operators_go_first_within_their_budget_and_aggregators_always),
        CASE(the_charged_party_may_change_during_a_turn),
        CASE(a_removed_entry_leaves_no_turn_and_no_charge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
