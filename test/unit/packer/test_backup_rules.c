/* Tests the decisions of the rules (packer/backup/README.md, BK7 to BK12). */
#include "test/unit/packer/backup_crowd.h"

/* A longer wait pays if one more gradient reduces the noise enough. A wait for a straggler does not
 * pay. */
static void auto_waits_for_noise_but_not_for_a_straggler(void **state)
{
    struct backup *b = create(BACKUP_AUTO, 0);
    uint64_t now_ns = 0;
    for (int i = 0; i < 12; i++)
        now_ns = round_of_all(b, now_ns, S / 100, 8);
    struct backup_decision d = first_arrivals(b, now_ns, 4);
    assert_int_equal(d.verb, BACKUP_WAIT);
    assert_true(d.until_ns > now_ns + S && d.until_ns < now_ns + 9 * S);
    for (uint32_t i = 4; i < N - 1; i++)
        d = arrive(b, i, now_ns + S + i * S / 100);
    assert_int_equal(d.verb, BACKUP_WAIT);
    d = decide(b, now_ns + 6 * S);
    assert_int_equal(d.verb, BACKUP_CLOSE);
    assert_int_equal(d.reason, BACKUP_REASON_MOMENT);
    backup_destroy(b);
}

static void auto_does_not_wait_where_there_is_no_noise(void **state)
{
    struct backup *b = create(BACKUP_AUTO, 0);
    uint64_t now_ns = 0;
    for (int i = 0; i < 12; i++)
        now_ns = round_of_all(b, now_ns, S / 2, 0);
    struct backup_decision d = first_arrivals(b, now_ns, 2);
    assert_int_equal(d.verb, BACKUP_CLOSE);
    assert_int_equal(d.reason, BACKUP_REASON_GAIN);
    backup_destroy(b);
}

static void auto_waits_for_all_while_no_step_gains(void **state)
{
    struct backup *b = create(BACKUP_AUTO, 0);
    uint64_t now_ns = 0;
    for (int i = 0; i < 12; i++)
        now_ns = round_of_all(b, now_ns, S / 2, 900);
    struct backup_decision d = first_arrivals(b, now_ns, N - 1);
    assert_int_equal(d.verb, BACKUP_WAIT);
    assert_true(d.until_ns == BACKUP_NEVER_NS);
    backup_destroy(b);
}

/* Late in a training run the noise is large, and the curvature c is small. All steps improve the
 * loss, but with a curvature that is larger by a few hundredths they would not. The improvement by
 * one more gradient is then smaller than that of three rounds without the slow rank. */
static void auto_does_not_wait_for_a_straggler_late_in_a_run(void **state)
{
    enum { ROUNDS = 120, SLOW = 5 };
    struct backup *b = create(BACKUP_AUTO, 0);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t now_ns = round * SLOW * S;
        (void)first_arrivals(b, now_ns, N - 1);
        assert_int_equal(backup_arrived(b, N - 1, now_ns + SLOW * S), BACKUP_COUNTED);
        measure_curved(b, 225, 0.05);
        backup_closed(b, now_ns + SLOW * S);
    }
    struct backup_decision d = first_arrivals(b, ROUNDS * SLOW * S, N - 1);
    assert_int_equal(d.verb, BACKUP_CLOSE);
    assert_int_equal(d.reason, BACKUP_REASON_GAIN);
    backup_destroy(b);
}

static void auto_without_sums_waits_for_all(void **state)
{
    struct backup *b = create(BACKUP_AUTO, 0);
    for (uint64_t round = 0; round < 4; round++) {
        assert_int_equal(first_arrivals(b, round * 9 * S, N - 1).verb, BACKUP_WAIT);
        assert_int_equal(arrive(b, N - 1, (round + 1) * 9 * S).verb, BACKUP_CLOSE);
        backup_closed(b, (round + 1) * 9 * S);
    }
    backup_destroy(b);
}

static void adasync_waits_for_more_as_the_loss_falls(void **state)
{
    struct backup *b = create(BACKUP_ADASYNC, 2);
    struct backup_measure m = {.inputs = 2, .squares = 4, .mean = 1, .loss = 4};
    assert_int_equal(first_arrivals(b, 0, 2).verb, BACKUP_CLOSE);
    backup_closed(b, S);
    backup_measured(b, &m);
    /* 2 sqrt(4/F) exceeds 3 as soon as the mean F is below 16/9 */
    m.loss = 1;
    for (int i = 0; i < 14; i++)
        backup_measured(b, &m);
    assert_int_equal(first_arrivals(b, S, 3).verb, BACKUP_WAIT);
    assert_int_equal(arrive(b, 3, 3 * S).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

/* The number of gradients per second is largest at k = 4, because the other four gradients arrive
 * ten seconds later. */
static void blind_takes_the_most_gradients_a_second(void **state)
{
    struct backup *b = create(BACKUP_BLIND, 0);
    uint64_t now_ns = 0;
    for (int round = 0; round < 5; round++) {
        first_arrivals(b, now_ns, 4);
        for (uint32_t i = 4; i < N; i++)
            arrive(b, i, now_ns + 11 * S);
        now_ns += 11 * S;
        backup_closed(b, now_ns);
    }
    begin_all(b, now_ns);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(arrive(b, i, now_ns + S).verb, BACKUP_WAIT);
    assert_int_equal(arrive(b, 3, now_ns + S).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

/* The second and the third gradient arrive at the same time as the first. The other gradients
 * arrive at intervals of ten seconds, so three gradients are best. The last loss is larger than the
 * loss before. */
static void dbw_waits_for_one_more_after_a_loss_that_rose(void **state)
{
    struct backup *b = create(BACKUP_DBW, 0);
    const double losses[] = {2, 1.5, 1.2, 1, 1.02};
    uint64_t now_ns = 0;
    for (int i = 0; i < 5; i++) {
        const struct backup_measure m = {
            .inputs = N, .squares = N, .mean = 1, .product = NAN, .loss = losses[i], .rate = 0.5};
        first_arrivals(b, now_ns, 3);
        for (uint32_t j = 3; j < N; j++)
            backup_arrived(b, j, now_ns + (uint64_t)j * 10 * S);
        now_ns += 80 * S;
        backup_closed(b, now_ns);
        backup_measured(b, &m);
    }
    first_arrivals(b, now_ns, 2);
    arrive(b, 2, now_ns + S);
    backup_closed(b, now_ns + S);
    begin_all(b, now_ns + S);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(arrive(b, i, now_ns + 2 * S).verb, BACKUP_WAIT);
    assert_int_equal(arrive(b, 3, now_ns + 2 * S).verb, BACKUP_CLOSE);
    backup_destroy(b);
}

/* Makes ranks 4 to 7 five times slower than the others. */
static uint64_t slow_down(struct backup *b)
{
    uint64_t now_ns = 0;
    for (int round = 0; round < 20; round++) {
        begin_all(b, now_ns);
        for (uint32_t i = 0; i < N; i++)
            backup_arrived(b, i, now_ns + (i < 4 ? S : 5 * S));
        now_ns += 5 * S;
        measure(b, 20);
        backup_closed(b, now_ns);
    }
    return now_ns;
}

static void a_waiting_rank_goes_on_where_the_set_would_not_be_full(void **state)
{
    struct backup *b = create_second(BACKUP_STATIC, N);
    uint64_t now_ns = slow_down(b);
    begin_all(b, now_ns);
    for (uint32_t i = 0; i < 4; i++) {
        struct backup_decision d = arrive(b, i, now_ns + S);
        assert_int_equal(d.verb, BACKUP_WAIT);
        assert_int_equal(d.go_on_count, 1);
        assert_int_equal(d.go_on[0], i);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(arrive(b, i, now_ns + 2 * S).verb, i < 3 ? BACKUP_WAIT : BACKUP_CLOSE);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(backup_counted(b, i), i < 4 ? 2 : 0);
    backup_destroy(b);
}

static void no_rank_goes_on_where_all_arrive_together(void **state)
{
    struct backup *b = create_second(BACKUP_STATIC, N);
    uint64_t now_ns = 0;
    for (int i = 0; i < 12; i++)
        now_ns = round_of_all(b, now_ns, S / 100, 4);
    begin_all(b, now_ns);
    for (uint32_t i = 0; i < N; i++) {
        struct backup_decision d = arrive(b, i, now_ns + S + i * S / 100);
        assert_int_equal(d.go_on_count, 0);
        assert_int_equal(d.verb, i < N - 1 ? BACKUP_WAIT : BACKUP_CLOSE);
    }
    backup_destroy(b);
}

static void a_rank_gives_no_more_gradients_than_allowed(void **state)
{
    struct backup *b = create_second(BACKUP_STATIC, N);
    uint64_t now_ns = slow_down(b);
    begin_all(b, now_ns);
    for (uint64_t i = 1; i <= 3; i++) {
        struct backup_decision d = arrive(b, 0, now_ns + i * S);
        assert_int_equal(d.go_on_count, i < 3 ? 1 : 0);
    }
    assert_int_equal(backup_counted(b, 0), 3);
    assert_int_equal(backup_arrived(b, 0, now_ns + 4 * S), -EINVAL);
    backup_destroy(b);
}

static void a_second_gradient_in_flight_at_the_close_is_late(void **state)
{
    struct backup *b = create_second(BACKUP_STATIC, 6);
    uint64_t now_ns = slow_down(b);
    begin_all(b, now_ns);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(arrive(b, i, now_ns + S).verb, BACKUP_WAIT);
    assert_int_equal(arrive(b, 0, now_ns + 2 * S).verb, BACKUP_WAIT);
    assert_int_equal(arrive(b, 1, now_ns + 2 * S).verb, BACKUP_CLOSE);
    backup_closed(b, now_ns + 2 * S);
    assert_int_equal(backup_arrived(b, 2, now_ns + 2 * S + 1), BACKUP_LATE);
    backup_destroy(b);
}

static void a_proportional_rate_waits_for_more(void **state)
{
    struct backup_decision d[2];
    for (int i = 0; i < 2; i++) {
        const struct backup_options options = {.rule = BACKUP_AUTO,
                                               .rate = (enum backup_rate)i,
                                               .workers = N,
                                               .absence = BACKUP_ABSENCE_NONE};
        struct backup *b = NULL;
        uint64_t now_ns = 0;
        assert_int_equal(backup_create(&options, 0, &b), 0);
        for (int round = 0; round < 12; round++)
            now_ns = round_of_all(b, now_ns, S / 20, 0);
        d[i] = first_arrivals(b, now_ns, 2);
        backup_destroy(b);
    }
    assert_int_equal(d[0].verb, BACKUP_CLOSE);
    assert_int_equal(d[1].verb, BACKUP_WAIT);
}

/* Without noise, a round closes with two gradients. The previous round had eight gradients. Without
 * the tested check, both ranks would begin another gradient at the close. */
static void no_gradient_begins_at_the_moment_of_a_close(void **state)
{
    struct backup *b = create_second(BACKUP_AUTO, 0);
    uint64_t now_ns = 0;
    for (int i = 0; i < 12; i++)
        now_ns = round_of_all(b, now_ns, S / 2, 0);
    begin_all(b, now_ns);
    assert_int_equal(arrive(b, 0, now_ns + S).verb, BACKUP_WAIT);
    struct backup_decision d = arrive(b, 1, now_ns + S);
    assert_int_equal(d.verb, BACKUP_CLOSE);
    assert_int_equal(d.go_on_count, 0);
    assert_int_equal(backup_arrived(b, 1, now_ns + S), -EINVAL);
    backup_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_waits_for_noise_but_not_for_a_straggler),
        cmocka_unit_test(auto_does_not_wait_where_there_is_no_noise),
        cmocka_unit_test(auto_waits_for_all_while_no_step_gains),
        cmocka_unit_test(auto_does_not_wait_for_a_straggler_late_in_a_run),
        cmocka_unit_test(auto_without_sums_waits_for_all),
        cmocka_unit_test(adasync_waits_for_more_as_the_loss_falls),
        cmocka_unit_test(blind_takes_the_most_gradients_a_second),
        cmocka_unit_test(dbw_waits_for_one_more_after_a_loss_that_rose),
        cmocka_unit_test(a_waiting_rank_goes_on_where_the_set_would_not_be_full),
        cmocka_unit_test(no_rank_goes_on_where_all_arrive_together),
        cmocka_unit_test(a_rank_gives_no_more_gradients_than_allowed),
        cmocka_unit_test(a_second_gradient_in_flight_at_the_close_is_late),
        cmocka_unit_test(no_gradient_begins_at_the_moment_of_a_close),
        cmocka_unit_test(a_proportional_rate_waits_for_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
