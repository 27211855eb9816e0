/* A worker's connection that died unseen (A69): the worker makes another and says where it stands,
 * while the lane still takes the first one for alive. Transcripts over libfabric. */
#include "test/unit/lane_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SHORT 100
#define LONG (1u << 18)
/* Rank 0 again, in the place of a worker of its own, and once more. */
#define AGAIN 2
#define ONCE_MORE 3

static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void say(uint32_t i, uint8_t standing, uint64_t round, uint64_t elements)
{
    struct say said = {.piece = 1, .round = round, .elements = elements, .standing = standing};
    said.word = (uint32_t)round * 10 + i;
    said.has_no_input = said.has_no_output = standing == RECORD_IDLE;
    rig_input(&rig, i, 0)[7] = i == 1 ? 2.0f : 1.0f;
    rig_say(&rig, i, said);
}

/* Nothing that rank 0 sends or receives on its first connection arrives any more. */
static void come_back(void)
{
    rig_settle(&rig);
    rig.workers[0].is_stopped = true;
    rig_connect(&rig, AGAIN, RIG_JOB, 0);
}

static void commits(uint32_t i, int count)
{
    rig_until(&rig, rig.workers[i].commits_count == count);
    assert_true(rig_landing(&rig, i, 0)[7] == 3.0f);
}

static void nobody_was_hurt(void)
{
    rig.workers[0].is_stopped = false;
    rig_until(&rig, rig.workers[0].is_closed);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].errors_count + rig.workers[AGAIN].errors_count, 0);
    assert_int_equal(rig.failures, 0);
}

static void what_was_announced_before_does_not_count(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    say(0, RECORD_ANNOUNCE, 1, SHORT);
    come_back();
    say(1, RECORD_ANNOUNCE, 1, SHORT);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].words_count, 0);
    say(AGAIN, RECORD_ANNOUNCE, 1, SHORT);
    commits(1, 1);
    commits(AGAIN, 1);
    nobody_was_hurt();
}

static void an_idle_rank_goes_on_with_the_next_round(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    say(0, RECORD_ANNOUNCE, 1, SHORT);
    say(1, RECORD_ANNOUNCE, 1, SHORT);
    commits(0, 1);
    commits(1, 1);
    come_back();
    say(AGAIN, RECORD_IDLE, 1, SHORT);
    say(AGAIN, RECORD_ANNOUNCE, 2, SHORT);
    say(1, RECORD_ANNOUNCE, 2, SHORT);
    commits(1, 2);
    commits(AGAIN, 1);
    nobody_was_hurt();
}

static void a_commit_that_was_lost_is_told_again(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    say(0, RECORD_ANNOUNCE, 1, SHORT);
    say(1, RECORD_ANNOUNCE, 1, SHORT);
    commits(1, 1);
    come_back();
    rig_landing(&rig, AGAIN, 0)[7] = 3.0f;
    say(AGAIN, RECORD_HOLDS, 1, SHORT);
    commits(AGAIN, 1);
    nobody_was_hurt();
}

static void a_round_under_way_is_done_again(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, LONG);
    say(0, RECORD_ANNOUNCE, 1, LONG);
    rig_settle(&rig);
    rig.workers[0].is_stopped = true; /* the lane reads, and gets no answer */
    say(1, RECORD_ANNOUNCE, 1, LONG);
    come_back();
    say(AGAIN, RECORD_ANNOUNCE, 1, LONG);
    commits(1, 1);
    commits(AGAIN, 1);
    nobody_was_hurt();
}

static void a_result_that_is_held_already_is_made_again_for_the_others(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    come_back();
    say(AGAIN, RECORD_HOLDS, 1, SHORT);
    say(1, RECORD_ANNOUNCE, 1, SHORT);
    commits(1, 1);
    rig_until(&rig, rig.workers[AGAIN].commits_count == 1);
    nobody_was_hurt();
}

static void a_rank_that_is_one_ahead_waits_for_the_others(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    come_back();
    say(AGAIN, RECORD_KEEPS, 1, SHORT);
    say(AGAIN, RECORD_ANNOUNCE, 2, SHORT);
    say(1, RECORD_ANNOUNCE, 1, SHORT);
    commits(1, 1);
    say(1, RECORD_ANNOUNCE, 2, SHORT);
    commits(1, 2);
    commits(AGAIN, 1);
    nobody_was_hurt();
}

static void a_connection_that_dies_between_two_records_does_not_count(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    come_back();
    say(AGAIN, RECORD_KEEPS, 1, SHORT);
    rig_settle(&rig);
    rig.workers[AGAIN].is_stopped = true;
    rig_connect(&rig, ONCE_MORE, RIG_JOB, 0);
    say(ONCE_MORE, RECORD_ANNOUNCE, 1, SHORT);
    say(1, RECORD_ANNOUNCE, 1, SHORT);
    commits(1, 1);
    commits(ONCE_MORE, 1);
    rig.workers[AGAIN].is_stopped = false;
    nobody_was_hurt();
}

/* Rank 1 or 2 may hold a result with rank 0's gradient: another one would differ from it. */
static void where_the_first_make_a_round_its_tensor_fails(void **state)
{
    const struct lane_terms first_two = {.quorum = QUORUM_FIRST, .bound = 2};
    rig_start(&rig, "ofi");
    rig_place_piece(&rig, 3, (struct lane_piece){.id = 1, .elements = LONG, .terms = first_two},
                    false);
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    say(0, RECORD_ANNOUNCE, 1, LONG);
    rig_settle(&rig);
    rig.workers[0].is_stopped = true; /* the lane reads, and gets no answer */
    say(1, RECORD_ANNOUNCE, 1, LONG);
    rig_settle(&rig);
    rig_connect(&rig, ONCE_MORE, RIG_JOB, 0);
    say(2, RECORD_ANNOUNCE, 1, LONG);
    rig_until(&rig, rig.workers[1].errors_count == 1 && rig.workers[2].errors_count == 1);
    assert_int_equal(rig.workers[1].error.code, -EOWNERDEAD);
    assert_int_equal(rig.workers[1].words_count + rig.workers[2].words_count, 0);
    say(ONCE_MORE, RECORD_ANNOUNCE, 1, LONG);
    rig_until(&rig, rig.workers[ONCE_MORE].errors_count == 1);
}

static void a_job_that_is_dropped_waits_for_the_connections_that_were_replaced(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    say(0, RECORD_ANNOUNCE, 1, SHORT);
    come_back();
    lane_drop(rig.lane, RIG_JOB, NULL, 0);
    rig_until(&rig, rig.workers[1].is_closed && rig.workers[AGAIN].is_closed);
    nobody_was_hurt();
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)
static const struct CMUnitTest cases[] = {
    CASE(what_was_announced_before_does_not_count),
    CASE(an_idle_rank_goes_on_with_the_next_round),
    CASE(a_commit_that_was_lost_is_told_again),
    CASE(a_round_under_way_is_done_again),
    CASE(a_result_that_is_held_already_is_made_again_for_the_others),
    CASE(a_rank_that_is_one_ahead_waits_for_the_others),
    CASE(a_connection_that_dies_between_two_records_does_not_count),
    CASE(where_the_first_make_a_round_its_tensor_fails),
    CASE(a_job_that_is_dropped_waits_for_the_connections_that_were_replaced),
};

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(cases, NULL, NULL);
}
