/* Tests a worker whose connection was lost. The worker connects again and reports its standing. At
 * this time the lane still considers the first connection alive (A69), or has detected its end
 * (A70). Uses libfabric. */
#include "svc/base/text.h"
#include "svc/lane/hear/leave.h"
#include "svc/lane/hear/replace.h"
#include "svc/lane/move/regroup.h"
#include "test/lib/kept_log.h"
#include "test/unit/lane/lane_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#define SHORT 100
#define LONG (1u << 18)
/* Later connections of rank 0 are workers 2 and 3 of the rig. */
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

/* From now on, all that rank 0 sends or receives over its first connection is lost. */
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

static void announcements_of_the_former_connection_are_void(void **state)
{
    kept_log_begin();
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    say(0, RECORD_ANNOUNCE, 1, SHORT);
    come_back();
    kept_log_expect(": a new connection replaces the one from ");
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

static void a_lost_commit_is_sent_again(void **state)
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
    /* while the rank is stopped, the lane starts to read, and gets no answer */
    rig.workers[0].is_stopped = true;
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

static void a_rank_one_round_ahead_waits_for_the_others(void **state)
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

/* Rank 1 or 2 may already have a result with rank 0's gradient. The result of a repeated round
 * would differ. */
static void the_tensor_of_a_quorum_first_fails(void **state)
{
    const struct lane_terms first_two = {.quorum = QUORUM_FIRST, .bound = 2};
    rig_start(&rig, "ofi");
    rig_place_piece(&rig, 3, (struct lane_piece){.id = 1, .elements = LONG, .terms = first_two},
                    false);
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_connect(&rig, rank, RIG_JOB, rank);
    say(0, RECORD_ANNOUNCE, 1, LONG);
    rig_settle(&rig);
    rig.workers[0].is_stopped = true; /* the lane starts to read, and gets no answer */
    say(1, RECORD_ANNOUNCE, 1, LONG);
    rig_settle(&rig);
    rig_connect(&rig, ONCE_MORE, RIG_JOB, 0);
    say(2, RECORD_ANNOUNCE, 1, LONG);
    rig_until(&rig, rig.workers[1].errors_count == 1 && rig.workers[2].errors_count == 1);
    assert_true(rig_says(&rig.workers[1], -EOWNERDEAD,
                         ": the connection of rank 0 was lost during a round"));
    assert_int_equal(rig.workers[1].words_count + rig.workers[2].words_count, 0);
    say(ONCE_MORE, RECORD_ANNOUNCE, 1, LONG);
    rig_until(&rig, rig.workers[ONCE_MORE].errors_count == 1);
}

static void say_sum(uint32_t i, uint8_t standing, uint64_t round)
{
    struct say said = {.piece = 1, .round = round, .elements = LONG, .standing = standing};
    said.root = said.word = (uint32_t)round;
    said.has_no_input = standing == RECORD_TAKES;
    rig_say(&rig, i, said);
}

static void choose_two(uint32_t i, uint64_t round)
{
    const struct record_chosen chosen = {.kind = RECORD_CHOSEN, .round = round, .ranks = {3}};
    assert_int_equal(fabric_send(rig.workers[i].conn, &chosen, sizeof chosen, NULL, 0), 0);
}

/* The interrupted round has overwritten a part of the result of round 1. */
static void a_result_overwritten_by_an_interrupted_round_is_not_sent(void **state)
{
    const struct lane_terms sums = {.quorum = QUORUM_CHOSEN, .role = FOLLOWS_ROUNDS, .lag = 2};
    rig_start(&rig, "ofi");
    rig_place_piece(&rig, 3,
                    (struct lane_piece){.id = 1, .elements = LONG, .terms = sums, .tensor = "w"},
                    false);
    for (uint32_t i = 0; i < 3; i++)
        rig_connect(&rig, i, RIG_JOB, i);
    for (uint64_t round = 1; round <= 2; round++) {
        choose_two(1, round);
        say_sum(0, RECORD_ANNOUNCE, round);
        say_sum(1, RECORD_ANNOUNCE, round);
        rig_until(&rig, rig.workers[0].commits_count == (int)round &&
                            rig.workers[1].commits_count == (int)round);
    }
    choose_two(1, 3);
    say_sum(0, RECORD_ANNOUNCE, 3);
    rig_settle(&rig);
    rig.workers[0].is_stopped = true; /* the lane starts to read, and gets no answer */
    say_sum(1, RECORD_ANNOUNCE, 3);
    rig_settle(&rig);
    rig_connect(&rig, ONCE_MORE, RIG_JOB, 0);
    say_sum(2, RECORD_TAKES, 1);
    rig_until(&rig, rig.workers[2].errors_count > 0);
    assert_true(rig_says(&rig.workers[2], -EOWNERDEAD, "lacks the result of round 1"));
    assert_int_equal(rig.workers[2].words_count, 0);
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

/* ---- the lane has detected the end of the connection ---- */

#define DESCRIPTORS_MAX 512
#define HOUR_NS UINT64_C(3600000000000)

static bool is_connected_to_lane(int fd)
{
    struct sockaddr_in peer;
    socklen_t bytes = sizeof peer;
    uint64_t port;
    assert_int_equal(text_parse_u64(strrchr(rig.address, ':') + 1, 1, UINT16_MAX, &port), 0);
    return getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 && peer.sin_family == AF_INET &&
           ntohs(peer.sin_port) == port;
}

/* Acts like a firewall: resets the lane's oldest connection. */
static void reset_oldest(void)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    int fd = 3;
    while (fd < DESCRIPTORS_MAX && !is_connected_to_lane(fd))
        fd++;
    assert_true(fd < DESCRIPTORS_MAX);
    assert_int_equal(connect(fd, &none, sizeof none), 0);
}

static void count_lost(void *context, const struct lane_lost *lost)
{
    assert_int_equal(lost->job, RIG_JOB);
    assert_int_equal(lost->rank, 0);
    assert_non_null(strstr(lost->peer, "127.0.0.1:"));
    ++*(int *)context;
}

static int lost_ranks(void)
{
    int count = 0;
    lane_each_lost(rig.lane, count_lost, &count);
    return count;
}

static void lose_connection(void)
{
    reset_oldest();
    /* rank 0 does not run, and its socket is no longer connected */
    rig.workers[0].is_stopped = true;
    rig_until(&rig, lost_ranks() == 1);
    assert_int_equal(rig.failures, 1); /* the coordinator has received the failure */
}

struct said {
    int code;
    char text[256];
};

static void note_failure(void *context, uint32_t job, int code, const char *text)
{
    struct said *said = context;
    said->code = code;
    snprintf(said->text, sizeof said->text, "%s", text);
}

static struct said failure(void)
{
    struct said said = {0};
    lane_each_failure(rig.lane, note_failure, &said);
    return said;
}

static void a_rank_whose_connection_was_reset_connects_again(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    say(0, RECORD_ANNOUNCE, 1, SHORT);
    rig_settle(&rig);
    lose_connection();
    say(1, RECORD_ANNOUNCE, 1, SHORT);
    rig_settle(&rig);
    assert_int_equal(rig.workers[1].words_count, 0);
    rig_connect(&rig, AGAIN, RIG_JOB, 0);
    assert_int_equal(lost_ranks(), 0);
    say(AGAIN, RECORD_ANNOUNCE, 1, SHORT);
    commits(1, 1);
    commits(AGAIN, 1);
    assert_int_equal(failure().code, 0);
    assert_int_equal(lane_expire_away(rig.lane, rig_now() + HOUR_NS), 0);
}

static void a_round_interrupted_by_a_reset_is_repeated(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, LONG);
    say(0, RECORD_ANNOUNCE, 1, LONG);
    rig_settle(&rig);
    rig.workers[0].is_stopped = true; /* the lane starts to read, and gets no answer */
    say(1, RECORD_ANNOUNCE, 1, LONG);
    rig_settle(&rig);
    rig.workers[0].is_stopped = false;
    lose_connection();
    rig_connect(&rig, AGAIN, RIG_JOB, 0);
    say(AGAIN, RECORD_ANNOUNCE, 1, LONG);
    commits(1, 1);
    commits(AGAIN, 1);
    assert_int_equal(failure().code, 0);
}

static void a_rank_that_does_not_come_back_in_its_time_ends_its_job(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    lose_connection();
    uint64_t until_ns = lane_expire_away(rig.lane, rig_now());
    assert_true(until_ns > rig_now());
    assert_int_equal(failure().code, 0);
    assert_int_equal(lane_expire_away(rig.lane, until_ns), 0);
    struct said said = failure();
    assert_int_equal(said.code, -ECONNRESET);
    assert_non_null(strstr(said.text, "rank 0 of job 'job' (127.0.0.1:"));
    assert_non_null(strstr(said.text, "has lost its connection to lane 3 for 20 s: "));
    assert_non_null(strstr(said.text, "; look for a firewall or NAT between that host"));
    rig_until(&rig, rig.workers[1].errors_count == 1);
    assert_int_equal(lost_ranks(), 0);
}

static bool is_awaited;

static void note_awaited(void *context, const struct lane_lost *lost)
{
    is_awaited = lost->may_return;
}

static void in_an_elastic_job_the_coordinator_decides_after_the_limit(void **state)
{
    kept_log_begin();
    rig_start_job(&rig, "ofi", 1, 1, SHORT);
    lane_set_elastic(rig.lane, RIG_JOB);
    lose_connection();
    lane_each_lost(rig.lane, note_awaited, NULL);
    assert_true(is_awaited);
    rig_connect(&rig, AGAIN, RIG_JOB, 0);
    assert_int_equal(lost_ranks(), 0);
    reset_oldest();
    rig_until(&rig, lost_ranks() == 1);
    assert_int_equal(lane_expire_away(rig.lane, rig_now() + HOUR_NS), 0);
    assert_int_equal(lost_ranks(), 1);
    lane_each_lost(rig.lane, note_awaited, NULL);
    assert_false(is_awaited);
    assert_int_equal(failure().code, 0);
    kept_log_expect(" has not connected again to lane 3 within ");
}

/* Without a limit, a round that fails on every connection would be repeated forever. */
static void a_connection_that_is_reset_too_often_ends_the_job(void **state)
{
    rig_start_job(&rig, "ofi", 1, 1, SHORT);
    for (uint32_t i = 1; i <= 10; i++) {
        reset_oldest();
        rig_until(&rig, lost_ranks() == 1);
        rig_connect(&rig, i, RIG_JOB, 0);
        assert_int_equal(failure().code, 0);
    }
    reset_oldest();
    rig_until(&rig, failure().code == -ECONNRESET);
    assert_non_null(strstr(failure().text, "connection to lane 3 11 times in 60 s: "));
    assert_non_null(strstr(failure().text, " 11 times in 60 s"));
}

/* The lane does not detect the end of any of these connections. */
static void a_connection_that_is_replaced_too_often_ends_the_job(void **state)
{
    rig_start_job(&rig, "ofi", 1, 1, SHORT);
    for (uint32_t i = 1; i <= 10; i++) {
        rig.workers[i - 1].is_stopped = true;
        rig_connect(&rig, i, RIG_JOB, 0);
        assert_int_equal(failure().code, 0);
    }
    rig.workers[10].is_stopped = true;
    struct record_connect ticket = rig_ticket(&rig, RIG_JOB, 0);
    struct rig_worker *w = &rig.workers[11];
    assert_int_equal(fabric_open("ofi", NULL, &w->fabric), 0);
    assert_int_equal(fabric_connect(w->fabric, rig.address, &ticket, sizeof ticket, w, &w->conn),
                     0);
    rig_until(&rig, failure().code == -ECONNRESET);
    assert_non_null(strstr(failure().text, "connection to lane 3 11 times in 60 s: "));
}

/* ---- a lane without pieces of the job ---- */

static void drop_all_pieces(void)
{
    const uint32_t piece = 1;
    lane_drop(rig.lane, RIG_JOB, &piece, 1);
}

static void an_unused_connection_proves_no_loss(bool is_elastic)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    if (is_elastic)
        lane_set_elastic(rig.lane, RIG_JOB);
    drop_all_pieces();
    lose_connection();
    lane_each_lost(rig.lane, note_awaited, NULL);
    assert_true(is_awaited);
    assert_int_equal(lane_expire_away(rig.lane, rig_now() + HOUR_NS), 0);
    assert_int_equal(lost_ranks(), 0);
    assert_int_equal(failure().code, 0);
    rig_place(&rig, RIG_JOB, 2, 1, 1, SHORT, false);
    rig_connect(&rig, AGAIN, RIG_JOB, 0);
    say(1, RECORD_ANNOUNCE, 1, SHORT);
    say(AGAIN, RECORD_ANNOUNCE, 1, SHORT);
    commits(1, 1);
    commits(AGAIN, 1);
}

static void a_lane_without_pieces_reports_no_lost_rank_of_an_elastic_job(void **state)
{
    an_unused_connection_proves_no_loss(true);
}

static void a_lane_without_pieces_fails_no_job(void **state)
{
    an_unused_connection_proves_no_loss(false);
}

static void an_unused_connection_may_be_reset_any_number_of_times(void **state)
{
    rig_start_job(&rig, "ofi", 1, 1, SHORT);
    drop_all_pieces();
    for (uint32_t i = 1; i <= 11; i++) {
        reset_oldest();
        rig_until(&rig, lost_ranks() == 1);
        rig_connect(&rig, i, RIG_JOB, 0);
        assert_int_equal(failure().code, 0);
    }
}

/* The goodbye may be lost with the connection. The coordinator therefore reports the rank (K55). */
static void a_rank_that_has_left_is_waited_for_no_longer(void **state)
{
    const uint64_t left[RECORD_MISSING_WORDS] = {1};
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    lose_connection();
    say(1, RECORD_ANNOUNCE, 1, SHORT);
    rig_settle(&rig);
    lane_leave(rig.lane, RIG_JOB, left);
    rig_until(&rig, rig.workers[1].errors_count == 1);
    assert_true(rig_says(&rig.workers[1], -EPIPE,
                         "rank 0 has left job 'job'; leave after the same round on all ranks"));
    assert_int_equal(lost_ranks(), 0);
}

static void a_job_that_is_dropped_waits_for_no_rank(void **state)
{
    rig_start_job(&rig, "ofi", 2, 1, SHORT);
    lose_connection();
    lane_drop(rig.lane, RIG_JOB, NULL, 0);
    rig_until(&rig, rig.workers[1].is_closed);
    assert_int_equal(lane_expire_away(rig.lane, rig_now() + HOUR_NS), 0);
}

#define CASE(name) cmocka_unit_test_teardown(name, stop)
static const struct CMUnitTest cases[] = {
    CASE(announcements_of_the_former_connection_are_void),
    CASE(an_idle_rank_goes_on_with_the_next_round),
    CASE(a_lost_commit_is_sent_again),
    CASE(a_round_under_way_is_done_again),
    CASE(a_result_that_is_held_already_is_made_again_for_the_others),
    CASE(a_rank_one_round_ahead_waits_for_the_others),
    CASE(a_connection_that_dies_between_two_records_does_not_count),
    CASE(the_tensor_of_a_quorum_first_fails),
    CASE(a_result_overwritten_by_an_interrupted_round_is_not_sent),
    CASE(a_job_that_is_dropped_waits_for_the_connections_that_were_replaced),
    CASE(a_rank_whose_connection_was_reset_connects_again),
    CASE(a_round_interrupted_by_a_reset_is_repeated),
    CASE(a_rank_that_does_not_come_back_in_its_time_ends_its_job),
    CASE(in_an_elastic_job_the_coordinator_decides_after_the_limit),
    CASE(a_connection_that_is_reset_too_often_ends_the_job),
    CASE(a_connection_that_is_replaced_too_often_ends_the_job),
    CASE(a_lane_without_pieces_reports_no_lost_rank_of_an_elastic_job),
    CASE(a_lane_without_pieces_fails_no_job),
    CASE(an_unused_connection_may_be_reset_any_number_of_times),
    CASE(a_rank_that_has_left_is_waited_for_no_longer),
    CASE(a_job_that_is_dropped_waits_for_no_rank),
};

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(cases, NULL, NULL);
}
