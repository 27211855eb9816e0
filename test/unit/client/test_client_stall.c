/* Tests the lines that a worker writes to its log: about a long wait and the missing ranks, about
 * the end of the wait, and about progress. */
#include "svc/base/clock.h"
#include "test/unit/client/client_fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TENSORS 6
#define ELEMENTS 1000
/* Computing time of a step in us. Without this time the test would run more rounds than the
 * scripted service can store. */
#define COMPUTE_US 10000
#define LINES_MAX 64
#define LINE_BYTES 1024

static const char *const names[TENSORS] = {"a", "b", "c", "d", "e", "f"};
static float values[WORKERS][TENSORS][ELEMENTS];
static gp_tensor *tensors[TENSORS][WORKERS];
static gp_request *q[WORKERS];

/* ---- the log ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[LINES_MAX][LINE_BYTES];
static size_t lines_count;

static void keep(int level, const char *line)
{
    pthread_mutex_lock(&lock);
    if (lines_count < LINES_MAX)
        snprintf(lines[lines_count++], LINE_BYTES, "%d %s", level, line);
    pthread_mutex_unlock(&lock);
}

/* Returns the number of lines with these words. `last`, an array of LINE_BYTES, receives the last
 * of these lines. */
static size_t count(const char *words, char *last)
{
    size_t found = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < lines_count; i++) {
        if (!strstr(lines[i], words))
            continue;
        found++;
        if (last)
            memcpy(last, lines[i], LINE_BYTES);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void holds(const char *line, const char *words)
{
    if (!strstr(line, words))
        fail_msg("no '%s' in '%s'", words, line);
}

static double seconds_in(const char *line)
{
    double seconds = -1;
    assert_int_equal(sscanf(strstr(line, " for "), " for %lf s", &seconds), 1);
    return seconds;
}

/* ---- a service and two workers ---- */

static int start(const char *stall_ms, const char *progress_seconds, void **state)
{
    setenv("GRADPOOL_STALL_MS", stall_ms, 1);
    setenv("GRADPOOL_PROGRESS_SECONDS", progress_seconds, 1);
    lines_count = 0;
    return fixture_start(state);
}

static int start_soon(void **state) { return start("60", "0", state); }
static int start_never(void **state) { return start("0", "0", state); }
static int start_progress(void **state) { return start("0", "1", state); }

static void declare_all(size_t count_of)
{
    for (size_t i = 0; i < count_of; i++)
        declare(names[i], ELEMENTS, tensors[i]);
}

static void push_all(uint32_t rank, size_t count_of)
{
    gp_item items[TENSORS];
    for (size_t i = 0; i < count_of; i++)
        items[i] = (gp_item){tensors[i][rank], values[rank][i], values[rank][i]};
    ok(gp_push_pull_group(jobs[rank], items, count_of, GP_SUM, &q[rank]));
}

/* ---- cases ---- */

static void a_long_wait_is_logged_repeatedly_and_its_end_is_logged(void **state)
{
    char line[LINE_BYTES];
    declare_all(TENSORS);
    push_all(0, TENSORS);
    failed(gp_wait(q[0], 100), -ETIMEDOUT, "rank 1", NULL);
    assert_int_equal(count("has waited", line), 1);
    double first = seconds_in(line);
    assert_true(first >= 0.06);
    for (int i = 0; i < 100 && count("has waited", line) < 2; i++)
        /* the log counts several waits for one push as one wait */
        failed(gp_wait(q[0], 50), -ETIMEDOUT, "rank 1", NULL);
    assert_true(seconds_in(line) >= 1.9 * first);
    holds(line, "1 job 'job' rank 0 has waited for ");
    holds(line, " s: tensor 'a' round 1: no push from rank 1; late as well: 'b', 'c', 'd' and 2 "
                "more");
    assert_int_equal(count("goes on", NULL), 0);
    push_all(1, TENSORS);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_wait(q[rank], WAIT_MS));
    assert_int_equal(count("goes on", line), 1);
    holds(line, "1 job 'job' rank 0 goes on after ");
}

static void waits_of_a_moment_each_are_one_wait(void **state)
{
    char line[LINE_BYTES];
    declare_all(1);
    push_all(0, 1);
    uint64_t deadline_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
    while (count("has waited", line) == 0 && clock_now_ns() < deadline_ns)
        assert_int_equal(gp_poll(q[0], 10), 0);
    holds(line, "'a' round 1: no push from rank 1");
    push_all(1, 1);
    ok(gp_wait(q[1], WAIT_MS));
    while (gp_poll(q[0], 10) == 0)
        assert_true(clock_now_ns() < deadline_ns);
    ok(gp_wait(q[0], WAIT_MS));
    assert_int_equal(count("goes on", NULL), 1);
}

static void a_lane_that_does_not_answer_is_named(void **state)
{
    char line[LINE_BYTES];
    declare_all(1);
    script_lock(&rig);
    rig.is_silent = true;
    script_unlock(&rig);
    push_all(0, 1);
    failed(gp_wait(q[0], 100), -ETIMEDOUT, NULL);
    assert_int_equal(count("has waited", line), 1);
    holds(line, "'a' round 1: lane 0 of aggregator 5 on node7 does not answer");
}

static void the_log_has_the_text_of_the_coordinator_about_a_late_rank(void **state)
{
    char line[LINE_BYTES];
    declare_all(1);
    script_lock(&rig);
    rig.late_text = "rank 1 (node4, pid 77) has not pushed this tensor";
    script_unlock(&rig);
    push_all(0, 1);
    failed(gp_wait(q[0], 100), -ETIMEDOUT,
           "'a' round 1: no push from rank 1 after 100 ms; rank 1 (node4, pid 77) has not pushed",
           ". To wait longer, raise timeout_ms or GRADPOOL_TIMEOUT_MS", NULL);
    script_lock(&rig);
    assert_int_equal(rig.late_ranks[0], 1 << 1);
    script_unlock(&rig);
    assert_int_equal(count("has waited", line), 1);
    holds(line, "no push from rank 1; rank 1 (node4, pid 77) has not pushed this tensor");
}

static void a_stall_limit_of_0_turns_warnings_off(void **state)
{
    declare_all(1);
    push_all(0, 1);
    failed(gp_wait(q[0], 200), -ETIMEDOUT, "rank 1", NULL);
    assert_int_equal(count("rank 1", NULL), 0);
}

static void invalid_limits_are_refused(void **state)
{
    gp_client *client;
    setenv("GRADPOOL_STALL_MS", "soon", 1);
    failed(gp_connect(rig.endpoint, NULL, &client), -EINVAL, "GRADPOOL_STALL_MS is 'soon'", NULL);
    setenv("GRADPOOL_STALL_MS", "0", 1);
    setenv("GRADPOOL_PROGRESS_SECONDS", "-1", 1);
    failed(gp_connect(rig.endpoint, NULL, &client), -EINVAL, "GRADPOOL_PROGRESS_SECONDS is '-1'",
           NULL);
}

/* Runs rounds of two tensors until a worker has logged progress twice. The second line covers at
 * least a second. */
static void progress_is_reported_and_adds_up(void **state)
{
    uint64_t deadline_ns = clock_now_ns() + 4 * WAIT_MS * NS_PER_MS;
    uint64_t done = 0, rounds = 0, iterations = 0;
    double rate, mib, waited;
    char line[LINE_BYTES];
    declare_all(2);
    while (count("rank 0: ", line) < 2) {
        assert_true(clock_now_ns() < deadline_ns);
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            push_all(rank, 2);
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            ok(gp_wait(q[rank], WAIT_MS));
        usleep(COMPUTE_US);
        done++;
    }
    assert_int_equal(sscanf(line,
                            "2 job 'job' rank 0: %" SCNu64 " rounds in %" SCNu64
                            " iterations; since the previous "
                            "line: %lf rounds/s, %lf MiB/s pushed, %lf %% of the time waited",
                            &rounds, &iterations, &rate, &mib, &waited),
                     5);
    assert_in_range(iterations, 2, done);
    assert_in_range(rounds, 2 * iterations - 2, 2 * iterations);
    assert_true(rate > 0 && rate < (double)rounds);
    assert_true(waited >= 0 && waited <= 100);
    double expected = rate * ELEMENTS * sizeof(float) / (1 << 20);
    assert_true(mib > expected - 0.1 && mib < expected + 0.1);
}

int main(void)
{
    setenv("GRADPOOL_LOG_LEVEL", "info", 1);
    gp_set_log(keep);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_long_wait_is_logged_repeatedly_and_its_end_is_logged,
                                        start_soon, fixture_stop),
        cmocka_unit_test_setup_teardown(waits_of_a_moment_each_are_one_wait, start_soon,
                                        fixture_stop),
        cmocka_unit_test_setup_teardown(a_lane_that_does_not_answer_is_named, start_soon,
                                        fixture_stop),
        cmocka_unit_test_setup_teardown(the_log_has_the_text_of_the_coordinator_about_a_late_rank,
                                        start_soon, fixture_stop),
        cmocka_unit_test_setup_teardown(a_stall_limit_of_0_turns_warnings_off, start_never,
                                        fixture_stop),
        cmocka_unit_test_setup_teardown(invalid_limits_are_refused, start_never, fixture_stop),
        cmocka_unit_test_setup_teardown(progress_is_reported_and_adds_up, start_progress,
                                        fixture_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
