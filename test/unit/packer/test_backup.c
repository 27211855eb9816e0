/* Tests the events of rounds that close without their stragglers (packer/backup/README.md, BK8,
 * BK10, BK11). */
#include "test/unit/packer/backup_crowd.h"

/* Linked with --wrap, which counts the packer's allocations. */
static size_t allocations, allocations_left = SIZE_MAX;

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
    allocations++;
    return allocations <= allocations_left ? __real_calloc(count, bytes) : NULL;
}

void *__wrap_malloc(size_t bytes)
{
    allocations++;
    return allocations <= allocations_left ? __real_malloc(bytes) : NULL;
}

static void a_static_round_closes_at_its_kth_arrival(void **state)
{
    struct backup *b = create(BACKUP_STATIC, 5);
    struct backup_decision d = first_arrivals(b, 0, 4);
    assert_int_equal(d.verb, BACKUP_WAIT);
    assert_true(d.until_ns == BACKUP_NEVER_NS);
    d = arrive(b, 6, 2 * S);
    assert_int_equal(d.verb, BACKUP_CLOSE);
    assert_int_equal(d.reason, BACKUP_REASON_GAIN);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(backup_is_counted(b, i), i < 4 || i == 6);
    backup_destroy(b);
}

/* The caller names the round of an announcement. This round counts even if the beginning of the
 * gradient was not reported to the rule. */
static void an_announcement_counts_for_the_round_that_the_caller_names(void **state)
{
    struct backup *b = create(BACKUP_STATIC, 3);
    /* nobody has reported the beginning of this gradient */
    assert_int_equal(backup_announced(b, 0, true, S), BACKUP_COUNTED);
    assert_int_equal(backup_announced(b, 0, true, S), BACKUP_COUNTED); /* a repeated announcement is
                                                                        * not counted again */
    assert_int_equal(backup_counted(b, 0), 1);
    assert_int_equal(backup_began(b, 1, S), 0);
    assert_int_equal(backup_began(b, 2, S), 0);
    assert_int_equal(backup_announced(b, 1, false, 2 * S), BACKUP_LATE);
    assert_false(backup_is_flying(b, 1) || backup_is_counted(b, 1));
    assert_true(backup_is_flying(b, 2));
    backup_closed(b, 3 * S);
    assert_int_equal(backup_announced(b, 2, true, 4 * S), BACKUP_COUNTED); /* the gradient began
                                                                            * before the close */
    assert_true(backup_is_counted(b, 2));
    assert_int_equal(backup_announced(b, N, true, S), -EINVAL);
    backup_destroy(b);
}

static void a_round_of_all_waits_for_every_worker(void **state)
{
    struct backup *b = create(BACKUP_ALL, 0);
    struct backup_decision d = first_arrivals(b, 0, N - 1);
    assert_int_equal(d.verb, BACKUP_WAIT);
    d = arrive(b, N - 1, 90 * S);
    assert_int_equal(d.verb, BACKUP_CLOSE);
    assert_int_equal(d.reason, BACKUP_REASON_ALL);
    backup_destroy(b);
}

static void the_first_rounds_wait_for_all(void **state)
{
    static const struct {
        enum backup_rule rule;
        uint32_t rounds;
    } cases[] = {{BACKUP_AUTO, 2}, {BACKUP_BEFORE, 2}, {BACKUP_DBW, 5}, {BACKUP_BLIND, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct backup *b = create(cases[i].rule, 0);
        uint64_t now_ns = 0;
        for (uint32_t round = 0; round < cases[i].rounds; round++) {
            assert_int_equal(first_arrivals(b, now_ns, N - 1).verb, BACKUP_WAIT);
            now_ns += 9 * S;
            assert_int_equal(arrive(b, N - 1, now_ns).verb, BACKUP_CLOSE);
            measure(b, 1);
            backup_closed(b, now_ns);
        }
        if (cases[i].rule == BACKUP_BLIND)
            assert_int_equal(first_arrivals(b, now_ns, N - 1).verb, BACKUP_CLOSE);
        backup_destroy(b);
    }
}

static void no_round_closes_below_least(void **state)
{
    const struct backup_options options = {
        .rule = BACKUP_STATIC, .workers = N, .k = 1, .least = 3, .absence = BACKUP_ABSENCE_NONE};
    struct backup *b = NULL;
    assert_int_equal(backup_create(&options, 0, &b), 0);
    assert_int_equal(first_arrivals(b, 0, 2).verb, BACKUP_WAIT);
    assert_int_equal(arrive(b, 2, S).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

static void a_single_gradient_is_no_round_by_default(void **state)
{
    struct backup *b = create(BACKUP_STATIC, 1);
    assert_int_equal(first_arrivals(b, 0, 1).verb, BACKUP_WAIT);
    assert_int_equal(arrive(b, 1, S).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

static void fewer_than_three_members_wait_for_each_other(void **state)
{
    struct backup *b = create(BACKUP_STATIC, 1);
    for (uint32_t i = 2; i < N; i++)
        assert_int_equal(backup_left(b, i), 0);
    backup_began(b, 0, 0);
    backup_began(b, 1, 0);
    assert_int_equal(arrive(b, 1, S).verb, BACKUP_WAIT);
    assert_int_equal(arrive(b, 0, 2 * S).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

static void one_worker_closes_alone(void **state)
{
    const struct backup_options options = {.rule = BACKUP_AUTO, .workers = 1};
    struct backup *b = NULL;
    assert_int_equal(backup_create(&options, 0, &b), 0);
    backup_began(b, 0, 0);
    assert_int_equal(arrive(b, 0, S).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

static void a_late_arrival_is_not_of_the_open_round(void **state)
{
    struct backup *b = create(BACKUP_STATIC, 4);
    assert_int_equal(first_arrivals(b, 0, 4).verb, BACKUP_CLOSE);
    backup_closed(b, S);
    for (uint32_t i = 0; i < 4; i++)
        backup_began(b, i, S);
    assert_int_equal(backup_arrived(b, 7, 2 * S), BACKUP_LATE);
    assert_false(backup_is_counted(b, 7));
    assert_int_equal(decide(b, 2 * S).verb, BACKUP_WAIT);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(arrive(b, i, 2 * S).verb, BACKUP_WAIT);
    backup_began(b, 7, 2 * S);
    assert_int_equal(arrive(b, 7, 3 * S).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

static void a_repeated_or_strange_announcement_is_refused(void **state)
{
    struct backup *b = create(BACKUP_STATIC, 4);
    struct backup_view before, after;
    begin_all(b, 0);
    arrive(b, 3, S);
    backup_look(b, &before);
    assert_int_equal(backup_arrived(b, 3, S), -EINVAL);
    assert_int_equal(backup_arrived(b, N, S), -EINVAL);
    assert_int_equal(backup_began(b, N, S), -EINVAL);
    assert_int_equal(backup_left(b, N), -EINVAL);
    assert_int_equal(backup_joined(b, N, S), -EINVAL);
    backup_look(b, &after);
    assert_int_equal(after.round, before.round);
    assert_int_equal(after.counted, 1);
    assert_int_equal(after.ranks, 1);
    assert_true(after.round_ns == before.round_ns);
    backup_destroy(b);
}

static void a_clock_that_goes_back_counts_no_time(void **state)
{
    struct backup *b = create(BACKUP_AUTO, 0);
    uint64_t now_ns = round_of_all(b, 9 * S, S / 10, 1);
    now_ns = round_of_all(b, now_ns, S / 10, 1);
    begin_all(b, now_ns);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(backup_arrived(b, i, S), BACKUP_COUNTED);
    assert_int_equal(decide(b, S).verb, BACKUP_CLOSE);
    backup_closed(b, S);
    struct backup_view view;
    backup_look(b, &view);
    assert_true(view.round_ns >= 0 && isfinite(view.round_ns));
    backup_destroy(b);
}

static void a_rank_absent_for_long_is_waited_for(void **state)
{
    const struct backup_options options = {
        .rule = BACKUP_STATIC, .workers = N, .k = N - 1, .absence = 3};
    struct backup *b = NULL;
    assert_int_equal(backup_create(&options, 0, &b), 0);
    for (uint64_t round = 0; round < 3; round++) {
        assert_int_equal(backup_absence(b, N - 1), round);
        assert_int_equal(first_arrivals(b, round * S, N - 1).verb, BACKUP_CLOSE);
        backup_closed(b, (round + 1) * S);
    }
    struct backup_decision d = first_arrivals(b, 3 * S, N - 1);
    assert_int_equal(d.verb, BACKUP_WAIT);
    d = arrive(b, N - 1, 20 * S);
    assert_int_equal(d.verb, BACKUP_CLOSE);
    assert_int_equal(d.reason, BACKUP_REASON_ALL);
    backup_closed(b, 20 * S);
    assert_int_equal(backup_absence(b, N - 1), 0);
    assert_int_equal(first_arrivals(b, 20 * S, N - 1).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

static void a_wait_for_an_absent_rank_is_named(void **state)
{
    const struct backup_options options = {
        .rule = BACKUP_STATIC, .workers = N, .k = N - 2, .absence = 1};
    struct backup *b = NULL;
    assert_int_equal(backup_create(&options, 0, &b), 0);
    first_arrivals(b, 0, N - 2);
    backup_closed(b, S);
    begin_all(b, S);
    /* The gradient of rank 0 does not arrive. The gradients of ranks 6 and 7 arrive late. In the
     * round before, the gradients of these two ranks did not arrive. */
    for (uint32_t i = 1; i < N - 1; i++)
        assert_int_equal(arrive(b, i, 2 * S).verb, BACKUP_WAIT);
    struct backup_decision d = arrive(b, N - 1, 5 * S);
    assert_int_equal(d.verb, BACKUP_CLOSE);
    assert_int_equal(d.reason, BACKUP_REASON_ABSENCE);
    backup_destroy(b);
}

static void a_rank_that_left_is_not_waited_for(void **state)
{
    struct backup *b = create(BACKUP_ALL, 0);
    struct backup_view view;
    first_arrivals(b, 0, N - 1);
    assert_int_equal(backup_left(b, 0), 0);
    backup_look(b, &view);
    assert_int_equal(view.counted, N - 2);
    assert_int_equal(decide(b, S).verb, BACKUP_WAIT);
    assert_int_equal(backup_left(b, N - 1), 0);
    struct backup_decision d = decide(b, S);
    assert_int_equal(d.verb, BACKUP_CLOSE);
    assert_int_equal(d.reason, BACKUP_REASON_ALL);
    assert_int_equal(backup_arrived(b, 0, S), -EINVAL);
    backup_destroy(b);
}

static void k_is_cut_to_the_members(void **state)
{
    struct backup *b = create(BACKUP_STATIC, N);
    assert_int_equal(backup_left(b, N - 1), 0);
    for (uint32_t i = 0; i < N - 1; i++)
        backup_began(b, i, 0);
    for (uint32_t i = 0; i < N - 2; i++)
        assert_int_equal(arrive(b, i, S).verb, BACKUP_WAIT);
    assert_int_equal(arrive(b, N - 2, S).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

static void a_rank_that_joins_is_waited_for_like_the_others(void **state)
{
    struct backup *b = create(BACKUP_AUTO, 0);
    uint64_t now_ns = 0;
    for (int i = 0; i < 12; i++)
        now_ns = round_of_all(b, now_ns, S / 100, 8);
    assert_int_equal(backup_left(b, 7), 0);
    assert_int_equal(backup_joined(b, 7, now_ns), 0);
    struct backup_decision d = first_arrivals(b, now_ns, N - 1);
    assert_int_equal(d.verb, BACKUP_WAIT);
    assert_true(d.until_ns != BACKUP_NEVER_NS);
    assert_int_equal(arrive(b, 7, now_ns + S + S / 20).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

static void replaced_parameters_clear_the_estimates(void **state)
{
    struct backup *b = create(BACKUP_AUTO, 0);
    struct backup_view view;
    uint64_t now_ns = 0;
    for (int i = 0; i < 12; i++)
        now_ns = round_of_all(b, now_ns, S / 2, 0);
    backup_replaced(b);
    backup_look(b, &view);
    assert_true(view.noise == 1000 && view.curvature == 1);
    assert_true(view.k_mean == N);
    struct backup_decision d = first_arrivals(b, now_ns, N - 1);
    assert_int_equal(d.verb, BACKUP_WAIT);
    assert_int_equal(arrive(b, N - 1, now_ns + 9 * S).verb, BACKUP_CLOSE);
    measure(b, 0);
    backup_closed(b, now_ns + 9 * S);
    assert_int_equal(first_arrivals(b, now_ns + 9 * S, 2).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

static void a_restored_job_waits_for_all_in_two_rounds(void **state)
{
    struct backup *b = create(BACKUP_AUTO, 0);
    struct backup_view view;
    uint64_t now_ns = 0;
    for (int i = 0; i < 12; i++)
        now_ns = round_of_all(b, now_ns, S / 2, 0);
    backup_restored(b, now_ns);
    backup_look(b, &view);
    assert_true(view.round_ns == 0 && view.k_mean == 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(first_arrivals(b, now_ns, N - 1).verb, BACKUP_WAIT);
        now_ns += 5 * S;
        assert_int_equal(arrive(b, N - 1, now_ns).verb, BACKUP_CLOSE);
        measure(b, 0);
        backup_closed(b, now_ns);
    }
    assert_int_equal(first_arrivals(b, now_ns, 2).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

static void sums_that_are_not_finite_give_no_sample(void **state)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    struct backup *b = create(BACKUP_AUTO, 0);
    struct backup_view before, after;
    round_of_all(b, 0, S / 10, 4);
    backup_look(b, &before);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct backup_measure m = {.inputs = N, .squares = bad[i], .mean = 1, .product = 1};
        backup_measured(b, &m);
        m = (struct backup_measure){.inputs = N, .squares = 9, .mean = bad[i], .product = 1};
        backup_measured(b, &m);
    }
    struct backup_measure one = {.inputs = 1, .squares = 9, .mean = 9, .product = 1};
    backup_measured(b, &one);
    backup_look(b, &after);
    assert_true(before.noise == after.noise && before.curvature == after.curvature);
    backup_destroy(b);
}

static void a_closed_round_without_gradients_changes_only_its_number(void **state)
{
    struct backup *b = create(BACKUP_AUTO, 0);
    struct backup_view before, after;
    uint64_t now_ns = round_of_all(b, 0, S / 10, 4);
    backup_look(b, &before);
    backup_closed(b, now_ns + S);
    backup_look(b, &after);
    assert_int_equal(after.round, before.round + 1);
    assert_true(after.round_ns == before.round_ns && after.k_mean == before.k_mean);
    backup_destroy(b);
}

static uint64_t draw(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = (*state ^ (*state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 31);
}

/* Sends random events, valid and invalid. Returns a hash of all decisions. */
static uint64_t play(struct backup *b, uint64_t seed, int events)
{
    uint64_t now_ns = 0, hash = 0;
    for (int i = 0; i < events; i++) {
        uint32_t rank = (uint32_t)(draw(&seed) % (N + 1));
        struct backup_decision d = {0};
        now_ns += draw(&seed) % S;
        switch (draw(&seed) % 16) {
        case 0: backup_left(b, rank); break;
        case 1: backup_joined(b, rank, now_ns); break;
        case 2: backup_closed(b, now_ns); break;
        case 3: measure(b, (double)(draw(&seed) % 64)); break;
        case 4: draw(&seed) % 8 ? backup_replaced(b) : backup_restored(b, now_ns); break;
        case 5:
        case 6:
        case 7:
        case 8: backup_began(b, rank, now_ns); break;
        default: backup_arrived(b, rank, now_ns); break;
        }
        backup_decide(b, now_ns, &d);
        assert_true(d.until_ns >= now_ns);
        hash = draw(&hash) ^ d.until_ns ^ d.verb ^ (d.go_on_count << 8);
        if (d.verb == BACKUP_CLOSE)
            backup_closed(b, now_ns);
    }
    return hash;
}

static void the_same_events_give_the_same_decisions(void **state)
{
    for (enum backup_rule rule = 0; rule < BACKUP_RULES; rule++) {
        uint32_t k = rule == BACKUP_STATIC || rule == BACKUP_ADASYNC ? 4 : 0;
        for (uint64_t seed = 1; seed <= 20; seed++) {
            struct backup *one = create(rule, k), *other = create(rule, k);
            assert_true(play(one, seed, 500) == play(other, seed, 500));
            backup_destroy(one);
            backup_destroy(other);
        }
    }
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct backup *one = create_second(BACKUP_AUTO, 0), *other = create_second(BACKUP_AUTO, 0);
        assert_true(play(one, seed, 500) == play(other, seed, 500));
        backup_destroy(one);
        backup_destroy(other);
    }
}

static void creation_makes_the_only_allocation(void **state)
{
    for (enum backup_rule rule = 0; rule < BACKUP_RULES; rule++) {
        allocations = 0;
        struct backup *b = create(rule, rule == BACKUP_STATIC || rule == BACKUP_ADASYNC ? 4 : 0);
        play(b, 7, 500);
        assert_int_equal(allocations, 1);
        backup_destroy(b);
    }
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    const struct backup_options options = {.rule = BACKUP_DBW, .workers = N};
    struct backup *b = (struct backup *)state;
    allocations = 0;
    allocations_left = 0;
    int error = backup_create(&options, 0, &b);
    allocations_left = SIZE_MAX;
    assert_int_equal(error, -ENOMEM);
    assert_ptr_equal(b, state);
}

static void options_out_of_range_are_refused(void **state)
{
    static const struct backup_options cases[] = {
        {.rule = BACKUP_RULES, .workers = 4},
        {.rule = BACKUP_AUTO, .workers = 0},
        {.rule = BACKUP_AUTO, .workers = BACKUP_WORKERS_MAX + 1},
        {.rule = BACKUP_AUTO, .workers = 4, .k = 2},
        {.rule = BACKUP_AUTO, .workers = 4, .least = 5},
        {.rule = BACKUP_AUTO, .workers = 4, .gradients = 8},
        {.rule = BACKUP_AUTO, .workers = BACKUP_SECOND_MAX + 1, .gradients = 2},
        {.rule = BACKUP_AUTO, .workers = 4, .rate = BACKUP_RATE_PROPORTIONAL + 1},
        {.rule = BACKUP_STATIC, .workers = 4},
        {.rule = BACKUP_STATIC, .workers = 4, .k = 5},
        {.rule = BACKUP_ADASYNC, .workers = 4},
        {.rule = BACKUP_DBW, .workers = 4, .gradients = 2},
        {.rule = BACKUP_DBW, .workers = 257},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct backup *b = (struct backup *)state;
        assert_int_equal(backup_create(&cases[i], 0, &b), -EINVAL);
        assert_ptr_equal(b, state);
    }
    backup_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_static_round_closes_at_its_kth_arrival),
        cmocka_unit_test(a_round_of_all_waits_for_every_worker),
        cmocka_unit_test(the_first_rounds_wait_for_all),
        cmocka_unit_test(no_round_closes_below_least),
        cmocka_unit_test(a_single_gradient_is_no_round_by_default),
        cmocka_unit_test(fewer_than_three_members_wait_for_each_other),
        cmocka_unit_test(one_worker_closes_alone),
        cmocka_unit_test(a_late_arrival_is_not_of_the_open_round),
        cmocka_unit_test(a_repeated_or_strange_announcement_is_refused),
        cmocka_unit_test(a_clock_that_goes_back_counts_no_time),
        cmocka_unit_test(a_rank_absent_for_long_is_waited_for),
        cmocka_unit_test(a_wait_for_an_absent_rank_is_named),
        cmocka_unit_test(a_rank_that_left_is_not_waited_for),
        cmocka_unit_test(k_is_cut_to_the_members),
        cmocka_unit_test(a_rank_that_joins_is_waited_for_like_the_others),
        cmocka_unit_test(replaced_parameters_clear_the_estimates),
        cmocka_unit_test(a_restored_job_waits_for_all_in_two_rounds),
        cmocka_unit_test(sums_that_are_not_finite_give_no_sample),
        cmocka_unit_test(a_closed_round_without_gradients_changes_only_its_number),
        cmocka_unit_test(an_announcement_counts_for_the_round_that_the_caller_names),
        cmocka_unit_test(the_same_events_give_the_same_decisions),
        cmocka_unit_test(creation_makes_the_only_allocation),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
        cmocka_unit_test(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
