/* Tests the decisions of a pool (svc/pool/ranks.c) on a clock of the test. */
#include "test/unit/pool/ranks_case.h"

/* Checks the next action. A start is carried out. */
static void expect_start(uint32_t rank)
{
    struct pool_action action = next();
    assert_int_equal(action.verb, POOL_START);
    assert_int_equal(action.rank, rank);
    ranks_started(&p, rank, p.ranks[rank].incarnation + 1, false, now_ns);
}

/* A look at a job of this size, with all ranks below it joined. */
static struct pool_look look_of(uint32_t wanted, uint64_t rounds)
{
    struct pool_look look = {.asked_ns = now_ns,
                             .has_job = true,
                             .is_elastic = true,
                             .wanted = wanted,
                             .rounds = rounds};
    for (uint32_t rank = 0; rank < wanted; rank++)
        look.sessions[rank] = SEEN_JOINED;
    return look;
}

static bool looked(uint32_t wanted, uint64_t rounds)
{
    struct pool_look look = look_of(wanted, rounds);
    return ranks_looked(&p, &look, now_ns);
}

/* All ranks have made a step. */
static void train(uint32_t wanted)
{
    for (uint64_t rounds = 0; rounds < 3; rounds++)
        looked(wanted, 10 * rounds);
}

static int begin(void **state)
{
    now_ns = 1000 * NS_PER_S;
    ranks_init(&p, 2, MOST, LEAVE_NS);
    ranks_begin(&p, now_ns);
    expect_start(0);
    expect_start(1);
    expect_rest();
    return 0;
}

static void a_job_that_grows_starts_the_missing_ranks(void **state)
{
    train(2);
    assert_true(looked(4, 40));
    expect_start(2);
    expect_start(3);
    expect_rest();
    assert_int_equal(p.founders, 2);
    assert_false(looked(4, 50));
    expect_rest();
}

static void a_size_above_the_largest_number_is_ignored(void **state)
{
    assert_false(looked(MOST + 1, 10));
    expect_rest();
}

static void a_fixed_job_starts_no_rank(void **state)
{
    struct pool_look look = look_of(4, 10);
    look.is_elastic = false;
    assert_false(ranks_looked(&p, &look, now_ns));
    expect_rest();
}

static void a_rank_that_was_asked_to_leave_and_is_gone_has_left(void **state)
{
    train(2);
    looked(1, 40);
    expect_wait(30);
    assert_int_equal(exits(1, 75), VERDICT_AS_ASKED);
    expect_rest();
    assert_int_equal(p.ranks[1].state, RANK_ABSENT);
    assert_int_equal(p.code, 0);
    assert_int_equal(exits(0, 0), VERDICT_TRAINED);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 0);
}

static void a_rank_that_does_not_leave_is_ended_after_the_timeout(void **state)
{
    train(2);
    looked(1, 40);
    pass(29);
    expect_wait(1);
    pass(1);
    struct pool_action action = next();
    assert_int_equal(action.signal, SIGTERM);
    assert_true(action.is_late);
    pass(5);
    expect_signal(1, SIGKILL);
    expect_rest();
    assert_int_equal(killed(1), VERDICT_AS_ASKED);
}

static void a_job_that_grows_again_keeps_a_rank_that_has_not_left(void **state)
{
    train(2);
    looked(1, 40);
    looked(2, 50);
    pass(60);
    expect_rest();
    assert_int_equal(p.ranks[1].state, RANK_RUNNING);
}

static void a_rank_that_left_before_the_resize_was_seen_is_started_when_the_job_grows(void **state)
{
    train(2);
    assert_int_equal(exits(1, 0), VERDICT_TRAINED); /* as at the end of a training */
    assert_true(looked(1, 40));
    expect_rest();
    assert_true(looked(2, 50));
    expect_start(1);
    assert_int_equal(exits(0, 0), VERDICT_TRAINED);
}

static void a_rank_that_left_before_the_job_grew_again_is_started(void **state)
{
    train(2);
    looked(1, 40);
    looked(2, 50);
    assert_int_equal(exits(1, 0), VERDICT_AGAIN);
    assert_int_equal(pause_s, 0);
    expect_start(1);
}

/* A look at a job of two, after which rank 1 has left because of an earlier size of one. */
static struct pool_look look_without_one(uint64_t rounds)
{
    struct pool_look look = look_of(2, rounds);
    look.sessions[1] = SEEN_LEFT;
    look.was_removed[1] = true;
    return look;
}

/* The job shrinks and grows between two looks, so no look shows the smaller size. */
static void a_rank_that_left_between_two_looks_is_started_when_the_others_train_on(void **state)
{
    train(2);
    assert_int_equal(exits(1, 0), VERDICT_TRAINED);
    struct pool_look look = look_without_one(40);
    assert_false(ranks_looked(&p, &look, now_ns));
    expect_rest(); /* as at the end of a training */
    look = look_without_one(41);
    assert_false(ranks_looked(&p, &look, now_ns));
    expect_start(1);
    assert_false(p.has_trained);
    train(2);
    assert_int_equal(exits(1, 0), VERDICT_TRAINED);
    look = look_of(2, 60);
    look.sessions[1] = SEEN_LEFT; /* no size has removed the new process */
    ranks_looked(&p, &look, now_ns);
    look.rounds = 70;
    ranks_looked(&p, &look, now_ns);
    expect_rest();
    assert_int_equal(exits(0, 0), VERDICT_TRAINED);
    assert_true(ranks_are_over(&p));
}

static void a_removed_rank_at_the_end_of_the_training_is_not_started(void **state)
{
    train(2);
    assert_int_equal(exits(1, 0), VERDICT_TRAINED);
    for (int i = 0; i < 3; i++) { /* no further round */
        struct pool_look look = look_without_one(40);
        ranks_looked(&p, &look, now_ns);
        expect_rest();
    }
    assert_int_equal(exits(0, 0), VERDICT_TRAINED);
    struct pool_look late = look_without_one(41);
    late.sessions[0] = SEEN_LEFT;
    ranks_looked(&p, &late, now_ns);
    assert_true(ranks_are_over(&p));
}

static void a_start_that_the_seeming_end_has_cancelled_is_made_up_for(void **state)
{
    train(2);
    looked(3, 40);
    expect_start(2);
    assert_int_equal(killed(2), VERDICT_AGAIN);
    assert_int_equal(exits(1, 0), VERDICT_TRAINED);
    assert_int_equal(p.ranks[2].state, RANK_ABSENT);
    for (uint64_t rounds = 50; rounds < 52; rounds++) {
        struct pool_look look = look_without_one(rounds);
        look.wanted = 3;
        look.sessions[2] = SEEN_LOST;
        ranks_looked(&p, &look, now_ns);
    }
    expect_start(1);
    expect_start(2);
}

static void a_worker_that_dies_is_started_again_after_longer_and_longer_pauses(void **state)
{
    for (int i = 0; i < 9; i++) {
        train(2);
        assert_int_equal(killed(1), VERDICT_AGAIN);
        assert_int_equal(pause_s, i < 6 ? 1 << i : 60);
        expect_wait(pause_s);
        pass(pause_s);
        expect_start(1);
    }
    pass(121);
    train(2);
    assert_int_equal(killed(1), VERDICT_AGAIN);
    assert_int_equal(pause_s, 1);
}

static void the_third_failure_without_a_step_ends_all_workers(void **state)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(exits(1, 7), VERDICT_AGAIN);
        pass(pause_s);
        expect_start(1);
    }
    assert_int_equal(exits(1, 7), VERDICT_ALL);
    expect_signal(0, SIGTERM);
    expect_wait(5);
    assert_int_equal(exits(0, 0), VERDICT_AS_ASKED);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 7);
    assert_false(p.has_trained);
}

static void the_others_train_on_without_a_rank_that_has_failed(void **state)
{
    train(2);
    looked(3, 40);
    for (int i = 0; i < 3; i++) {
        expect_start(2);
        enum rank_verdict verdict = killed(2);
        assert_int_equal(verdict, i < 2 ? VERDICT_AGAIN : VERDICT_ALONE);
        pass(pause_s);
    }
    expect_rest();
    looked(2, 50);
    looked(3, 60); /* a resize starts the rank again */
    expect_start(2);
    assert_int_equal(p.ranks[2].failures, 0);
}

static void a_late_worker_in_no_round_has_made_no_step(void **state)
{
    looked(3, 0);
    expect_start(2);
    for (uint64_t rounds = 10; rounds < 60; rounds += 10) {
        struct pool_look look = look_of(3, rounds);
        look.sessions[2] = SEEN_ENTERING;
        ranks_looked(&p, &look, now_ns);
    }
    assert_true(p.ranks[0].has_stepped);
    assert_false(p.ranks[2].has_stepped);
}

static void a_look_from_before_the_start_shows_no_step(void **state)
{
    struct pool_look look = look_of(2, 10);
    look.asked_ns -= 1;
    for (int i = 0; i < 4; i++) {
        look.rounds += 10;
        ranks_looked(&p, &look, now_ns);
    }
    assert_false(p.ranks[0].has_stepped);
}

static void all_workers_that_are_lost_found_a_new_job_of_the_present_size(void **state)
{
    train(2);
    looked(3, 40);
    expect_start(2);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(killed(rank), VERDICT_AGAIN);
    pass(1);
    expect_start(0);
    assert_int_equal(p.founders, 3);
    expect_start(1);
    expect_start(2);
    assert_int_equal(p.founders, 3);
}

static void a_worker_that_fails_after_the_training_gives_the_exit_code(void **state)
{
    train(2);
    assert_int_equal(exits(0, 0), VERDICT_TRAINED);
    assert_int_equal(killed(1), VERDICT_AFTER);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 128 + SIGKILL);
}

static void a_worker_that_never_joined_is_ended_after_the_training(void **state)
{
    train(2);
    looked(4, 40);
    expect_start(2);
    expect_start(3);
    p.ranks[3].state = RANK_WAITING; /* its start is due later */
    p.ranks[3].due_ns = now_ns + NS_PER_S;
    assert_int_equal(exits(0, 0), VERDICT_TRAINED);
    assert_int_equal(exits(1, 0), VERDICT_TRAINED);
    assert_int_equal(p.ranks[3].state, RANK_ABSENT);
    expect_wait(30);
    pass(30);
    expect_signal(2, SIGTERM);
    assert_int_equal(killed(2), VERDICT_DROPPED);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 0);
}

/* Both were in the job when rank 1 ended its training, but no look had shown rank 0. */
static void a_worker_that_is_seen_after_the_training_is_not_ended(void **state)
{
    assert_int_equal(exits(1, 0), VERDICT_TRAINED);
    expect_wait(30);
    struct pool_look look = look_of(2, 10);
    look.sessions[1] = SEEN_LEFT;
    ranks_looked(&p, &look, now_ns);
    pass(60);
    expect_rest();
    assert_int_equal(exits(0, 0), VERDICT_TRAINED);
    assert_int_equal(p.code, 0);
}

/* The job of the training has ended, and the late worker waits for others in a new job. */
static void a_worker_in_a_new_job_is_ended_after_the_training(void **state)
{
    assert_int_equal(exits(1, 0), VERDICT_TRAINED);
    struct pool_look look = look_of(2, 0);
    look.sessions[1] = SEEN_NOT;
    ranks_looked(&p, &look, now_ns);
    pass(30);
    expect_signal(0, SIGTERM);
    assert_int_equal(killed(0), VERDICT_DROPPED);
}

static void a_signal_is_forwarded_and_hurried_by_the_next_ones(void **state)
{
    ranks_stop(&p, 130, now_ns);
    expect_signal(1, SIGINT);
    expect_signal(0, SIGINT);
    expect_wait(10);
    ranks_stop(&p, 143, now_ns);
    expect_signal(1, SIGTERM);
    expect_signal(0, SIGTERM);
    expect_wait(5);
    ranks_stop(&p, 143, now_ns);
    expect_signal(1, SIGKILL);
    expect_signal(0, SIGKILL);
    expect_rest();
    killed(0);
    killed(1);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 130);
}

static void workers_that_ignore_a_signal_are_ended(void **state)
{
    ranks_stop(&p, 130, now_ns);
    expect_signal(1, SIGINT);
    expect_signal(0, SIGINT);
    exits(1, 0);
    pass(10);
    expect_signal(0, SIGTERM);
    pass(5);
    expect_signal(0, SIGKILL);
    expect_rest();
}

static void a_start_that_is_due_does_not_survive_a_signal(void **state)
{
    killed(1);
    ranks_stop(&p, 130, now_ns);
    exits(0, 1);
    assert_true(ranks_are_over(&p));
}

static void a_program_that_cannot_be_executed_ends_the_pool(void **state)
{
    ranks_init(&p, 2, MOST, LEAVE_NS);
    ranks_begin(&p, now_ns);
    assert_int_equal(next().verb, POOL_START);
    assert_int_equal(ranks_refused(&p, 0, 127, now_ns), VERDICT_ALL);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 127);
}

/* --- adoption --- */

static int adopt(void **state)
{
    now_ns = 1000 * NS_PER_S;
    ranks_init(&p, 2, MOST, LEAVE_NS);
    ranks_started(&p, 0, 3, true, now_ns);
    ranks_started(&p, 1, 5, true, now_ns);
    expect_rest();
    return 0;
}

static enum rank_verdict ends_and_is(uint32_t rank, enum rank_session session)
{
    assert_int_equal(ranks_ended(&p, rank, END_UNKNOWN, 0, now_ns, &pause_s), VERDICT_LATER);
    struct pool_look look = look_of(2, 100);
    look.sessions[rank] = session;
    ranks_looked(&p, &look, now_ns);
    return ranks_judge(&p, rank, &look, now_ns, &pause_s);
}

static void the_service_knows_how_an_adopted_worker_has_ended(void **state)
{
    train(2);
    assert_int_equal(ends_and_is(1, SEEN_LOST), VERDICT_AGAIN);
    assert_int_equal(ends_and_is(0, SEEN_AWAY), VERDICT_LATER);
    assert_int_equal(p.ranks[0].state, RANK_GONE);
    struct pool_look look = look_of(2, 100);
    look.sessions[0] = SEEN_LEFT;
    assert_int_equal(ranks_judge(&p, 0, &look, now_ns, &pause_s), VERDICT_TRAINED);
    assert_true(ranks_are_over(&p));
}

/* The job has ended before the look, with this last state of the rank. */
static enum rank_verdict ends_with_its_job(uint32_t rank, enum rank_session session, bool has_ended)
{
    struct pool_look over = {.asked_ns = now_ns, .has_ended = has_ended};
    over.sessions[rank] = session;
    ranks_ended(&p, rank, END_UNKNOWN, 0, now_ns, &pause_s);
    return ranks_judge(&p, rank, &over, now_ns, &pause_s);
}

static void the_last_adopted_workers_have_trained_if_they_have_left(void **state)
{
    train(2);
    assert_int_equal(ends_with_its_job(0, SEEN_LEFT, true), VERDICT_TRAINED);
    assert_int_equal(ends_with_its_job(1, SEEN_LEFT, true), VERDICT_TRAINED);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 0);
}

static void adopted_workers_that_die_at_once_have_not_trained(void **state)
{
    train(2);
    assert_int_equal(ends_with_its_job(0, SEEN_LOST, true), VERDICT_AGAIN);
    assert_int_equal(ends_with_its_job(1, SEEN_LOST, true), VERDICT_AGAIN);
    pass(1);
    expect_start(0);
    expect_start(1);
    assert_false(p.has_trained);
}

static void the_end_of_a_job_that_the_service_has_forgotten_is_unknown(void **state)
{
    train(2);
    assert_int_equal(ends_with_its_job(0, SEEN_NOT, false), VERDICT_UNKNOWN);
    assert_int_equal(p.code, 1);
}

static void an_adopted_worker_whose_end_nobody_knows_is_an_error(void **state)
{
    train(2);
    ranks_ended(&p, 1, END_UNKNOWN, 0, now_ns, &pause_s);
    expect_wait(30);
    pass(30);
    assert_int_equal(next().verb, POOL_JUDGE);
    assert_int_equal(ranks_judge(&p, 1, NULL, now_ns, &pause_s), VERDICT_UNKNOWN);
    expect_rest();
    assert_int_equal(p.code, 1);
}

static void an_adopted_rank_that_was_removed_has_left(void **state)
{
    train(2);
    looked(1, 40);
    assert_int_equal(ranks_ended(&p, 1, END_UNKNOWN, 0, now_ns, &pause_s), VERDICT_AS_ASKED);
}

/* Rank 1 of four was adopted. Rank 0 is lost, rank 2 has left, and rank 3 has never joined. */
static struct pool_look adopt_one(bool was_removed)
{
    ranks_init(&p, 4, MOST, LEAVE_NS);
    ranks_started(&p, 1, 3, true, now_ns);
    struct pool_look look = look_of(4, 10);
    look.sessions[0] = SEEN_LOST;
    look.sessions[2] = SEEN_LEFT;
    look.was_removed[2] = was_removed;
    look.sessions[3] = SEEN_NOT;
    ranks_looked(&p, &look, now_ns);
    ranks_adopted(&p, &look, now_ns);
    return look;
}

static void ranks_that_ended_without_a_pool_are_started_unless_they_left(void **state)
{
    struct pool_look look = adopt_one(true);
    expect_start(0);
    expect_start(3);
    expect_rest();
    look.rounds++; /* the others train on, so the removed rank is needed again */
    ranks_looked(&p, &look, now_ns);
    expect_start(2);
}

static void a_rank_that_has_trained_without_a_pool_ends_the_starts(void **state)
{
    adopt_one(false);
    expect_rest();
    ranks_ended(&p, 1, END_UNKNOWN, 0, now_ns, &pause_s);
    struct pool_look look = look_of(4, 10);
    look.sessions[1] = SEEN_LOST;
    assert_int_equal(ranks_judge(&p, 1, &look, now_ns, &pause_s), VERDICT_AFTER);
    assert_true(ranks_are_over(&p));
    assert_int_equal(p.code, 1);
}

#define begun(test) cmocka_unit_test_setup(test, begin)
#define adopted(test) cmocka_unit_test_setup(test, adopt)

int main(void)
{
    const struct CMUnitTest tests[] = {
        begun(a_job_that_grows_starts_the_missing_ranks),
        begun(a_size_above_the_largest_number_is_ignored),
        begun(a_fixed_job_starts_no_rank),
        begun(a_rank_that_was_asked_to_leave_and_is_gone_has_left),
        begun(a_rank_that_does_not_leave_is_ended_after_the_timeout),
        begun(a_job_that_grows_again_keeps_a_rank_that_has_not_left),
        begun(a_rank_that_left_before_the_resize_was_seen_is_started_when_the_job_grows),
        begun(a_rank_that_left_before_the_job_grew_again_is_started),
        begun(a_rank_that_left_between_two_looks_is_started_when_the_others_train_on),
        begun(a_removed_rank_at_the_end_of_the_training_is_not_started),
        begun(a_start_that_the_seeming_end_has_cancelled_is_made_up_for),
        begun(a_worker_that_dies_is_started_again_after_longer_and_longer_pauses),
        begun(the_third_failure_without_a_step_ends_all_workers),
        begun(the_others_train_on_without_a_rank_that_has_failed),
        begun(a_late_worker_in_no_round_has_made_no_step),
        begun(a_look_from_before_the_start_shows_no_step),
        begun(all_workers_that_are_lost_found_a_new_job_of_the_present_size),
        begun(a_worker_that_fails_after_the_training_gives_the_exit_code),
        begun(a_worker_that_never_joined_is_ended_after_the_training),
        begun(a_worker_that_is_seen_after_the_training_is_not_ended),
        begun(a_worker_in_a_new_job_is_ended_after_the_training),
        begun(a_signal_is_forwarded_and_hurried_by_the_next_ones),
        begun(workers_that_ignore_a_signal_are_ended),
        begun(a_start_that_is_due_does_not_survive_a_signal),
        begun(a_program_that_cannot_be_executed_ends_the_pool),
        adopted(the_service_knows_how_an_adopted_worker_has_ended),
        adopted(the_last_adopted_workers_have_trained_if_they_have_left),
        adopted(adopted_workers_that_die_at_once_have_not_trained),
        adopted(the_end_of_a_job_that_the_service_has_forgotten_is_unknown),
        adopted(an_adopted_worker_whose_end_nobody_knows_is_an_error),
        adopted(an_adopted_rank_that_was_removed_has_left),
        adopted(ranks_that_ended_without_a_pool_are_started_unless_they_left),
        adopted(a_rank_that_has_trained_without_a_pool_ends_the_starts),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
