/* Tests which ends of processes `gradpool-bench faults` counts as crashes. */
#include "bench/faults/ends.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>

#include <cmocka.h>

#define HEAD "time=2026-11-24T10:00:00.000Z level=info who=\"coordinator\" msg=\""

static struct ends ends;

static int begin(void **state)
{
    pid_t pid;
    int status;
    ends = (struct ends){0};
    ends_read(&ends, HEAD "started a local aggregator on cores 0, pid 71\"", &pid, &status);
    ends_read(&ends, HEAD "started a local aggregator on cores 1, pid 72\"", &pid, &status);
    return 0;
}

static void the_log_has_the_end_of_an_aggregator(void **state)
{
    static const struct {
        const char *line;
        int status;
    } cases[] = {
        {HEAD "the local aggregator with pid 71 has ended: killed by signal 11\"", 128 + 11},
        {HEAD "the local aggregator with pid 71 has ended: exit code 66\"", 66},
        {HEAD "the local aggregator with pid 71 has ended: exit code 0\"", 0},
        {HEAD "the local aggregator with pid 71 has ended: ended\"", ENDS_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pid_t pid = 0;
        int status = 0;
        assert_int_equal(ends_read(&ends, cases[i].line, &pid, &status), ENDS_END);
        assert_int_equal(pid, 71);
        assert_int_equal(status, cases[i].status);
    }
}

static void other_log_lines_are_ignored(void **state)
{
    pid_t pid;
    int status;
    assert_int_equal(ends_read(&ends, HEAD "job a has ended\"", &pid, &status), ENDS_NOTHING);
    assert_int_equal(ends_read(&ends, "", &pid, &status), ENDS_NOTHING);
}

static void a_report_of_a_sanitizer_is_found(void **state)
{
    pid_t pid;
    int status;
    static const char *const lines[] = {
        "==71==ERROR: AddressSanitizer: heap-use-after-free on address 0x1",
        "==71==ERROR: LeakSanitizer: detected memory leaks",
        "WARNING: ThreadSanitizer: data race (pid=71)",
        "../svc/x.c:3:5: runtime error: signed integer overflow"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_int_equal(ends_read(&ends, lines[i], &pid, &status), ENDS_REPORT);
}

static void an_aggregator_drains_or_is_killed_and_all_else_is_a_crash(void **state)
{
    static const int good[] = {0, 128 + SIGKILL, 128 + SIGTERM};
    static const int bad[] = {1, 2, 3, 23, 66, 127, 128 + SIGSEGV, 128 + SIGABRT, ENDS_UNKNOWN};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(ends_of_aggregator(&ends, 71, good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(ends_of_aggregator(&ends, 71, bad[i]));
}

static void a_process_that_cannot_start_reports_the_reason_once(void **state)
{
    pid_t pid;
    int status;
    ends_read(&ends, "level=error who=\"aggregator\" msg=\"cannot start: it is away\"", &pid,
              &status);
    assert_true(ends_of_aggregator(&ends, 71, 1));
    assert_false(ends_of_aggregator(&ends, 72, 1));
}

static void a_process_with_an_unreported_end_is_missing(void **state)
{
    assert_true(ends_of_aggregator(&ends, 72, 0));
    assert_int_equal(ends_take_missing(&ends), 71);
    assert_int_equal(ends_take_missing(&ends), 0);
}

static void a_deliberately_killed_process_is_not_missing(void **state)
{
    ends_strike(&ends, 71);
    assert_true(ends_was_struck(&ends, 71));
    assert_false(ends_was_struck(&ends, 72));
    assert_int_equal(ends_take_missing(&ends), 72);
    assert_int_equal(ends_take_missing(&ends), 0);
}

static void only_the_announced_end_of_an_unharmed_process_is_planned(void **state)
{
    assert_false(ends_was_planned(&ends, 71, 0));
    ends_retire(&ends, 71);
    assert_true(ends_was_planned(&ends, 71, 0));
    assert_false(ends_was_planned(&ends, 71, 128 + SIGTERM));
    assert_false(ends_was_planned(&ends, 72, 0));
    ends_strike(&ends, 71);
    assert_false(ends_was_planned(&ends, 71, 0));
}

static void a_worker_ends_as_announced(void **state)
{
    assert_true(ends_of_worker_fit(0, 0, false));
    assert_true(ends_of_worker_fit(ENDS_WORKER_FAILED, -104, false));
    assert_false(ends_of_worker_fit(ENDS_WORKER_FAILED, 0, false));
    assert_false(ends_of_worker_fit(0, -104, false));
    assert_false(ends_of_worker_fit(1, 0, true));
    assert_false(ends_of_worker_fit(1, -104, true));
    assert_false(ends_of_worker_fit(128 + SIGSEGV, -104, true));
}

static void a_worker_is_killed_for_a_reason(void **state)
{
    assert_true(ends_of_worker_fit(128 + SIGKILL, 0, true));
    assert_false(ends_of_worker_fit(128 + SIGKILL, 0, false));
}

static void a_command_ends_with_a_code_that_is_documented(void **state)
{
    for (int code = 0; code <= 3; code++)
        assert_true(ends_of_command_fit(code));
    /* the bench has killed a command that hangs; this end counts as a hang, not as a crash */
    assert_true(ends_of_command_fit(128 + SIGKILL));
    assert_false(ends_of_command_fit(66));
    assert_false(ends_of_command_fit(128 + SIGABRT));
}

static void an_end_has_a_name(void **state)
{
    char text[32];
    ends_name(128 + 6, text, sizeof text);
    assert_string_equal(text, "signal 6");
    ends_name(66, text, sizeof text);
    assert_string_equal(text, "exit code 66");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_log_has_the_end_of_an_aggregator, begin),
        cmocka_unit_test_setup(other_log_lines_are_ignored, begin),
        cmocka_unit_test_setup(a_report_of_a_sanitizer_is_found, begin),
        cmocka_unit_test_setup(an_aggregator_drains_or_is_killed_and_all_else_is_a_crash, begin),
        cmocka_unit_test_setup(a_process_that_cannot_start_reports_the_reason_once, begin),
        cmocka_unit_test_setup(a_process_with_an_unreported_end_is_missing, begin),
        cmocka_unit_test_setup(a_deliberately_killed_process_is_not_missing, begin),
        cmocka_unit_test_setup(only_the_announced_end_of_an_unharmed_process_is_planned, begin),
        cmocka_unit_test(a_worker_ends_as_announced),
        cmocka_unit_test(a_worker_is_killed_for_a_reason),
        cmocka_unit_test(a_command_ends_with_a_code_that_is_documented),
        cmocka_unit_test(an_end_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
