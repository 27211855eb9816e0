/* Tests svc/base: clock, text, errors, log lines, lists, and the release of variables at the end of
 * a scope. */
#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/base/err.h"
#include "svc/base/list.h"
#include "svc/base/log.h"
#include "svc/base/system/shortage.h"
#include "svc/base/system/unique.h"
#include "svc/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

/* --- clock ----------------------------------------------------------------------------------- */

static void the_clock_never_runs_backwards(void **state)
{
    uint64_t last = clock_now_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_now_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void cpu_clocks_count_work_and_not_waiting(void **state)
{
    uint64_t process = clock_process_cpu_ns(), thread = clock_thread_cpu_ns();
    uint64_t wall = clock_now_ns();
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    assert_true(clock_now_ns() - wall >= 50 * NS_PER_MS);
    assert_true(clock_thread_cpu_ns() - thread < 40 * NS_PER_MS);
    while (clock_thread_cpu_ns() - thread < NS_PER_MS)
        ;
    assert_true(clock_process_cpu_ns() - process >= NS_PER_MS);
}

static void a_deadline_is_now_plus_milliseconds(void **state)
{
    assert_int_equal(clock_deadline_ns(7, 0), 7);
    assert_int_equal(clock_deadline_ns(7, 3), 7 + 3 * NS_PER_MS);
}

static void no_deadline_is_the_end_of_time(void **state)
{
    assert_true(clock_deadline_ns(7, -1) == UINT64_MAX);
    assert_int_equal(clock_poll_ms(UINT64_MAX, 7), -1);
}

static void a_far_deadline_does_not_wrap_around(void **state)
{
    assert_true(clock_deadline_ns(NS_PER_S, INT64_MAX) == UINT64_MAX);
    assert_true(clock_deadline_ns(UINT64_MAX - 5, 1) == UINT64_MAX);
}

static void a_poll_time_is_rounded_up_so_that_no_thread_wakes_early(void **state)
{
    assert_int_equal(clock_poll_ms(100 + 1, 100), 1);
    assert_int_equal(clock_poll_ms(100 + NS_PER_MS, 100), 1);
    assert_int_equal(clock_poll_ms(100 + NS_PER_MS + 1, 100), 2);
}

static void a_past_deadline_polls_without_waiting(void **state)
{
    assert_int_equal(clock_poll_ms(100, 100), 0);
    assert_int_equal(clock_poll_ms(1, 100), 0);
}

static void a_poll_time_is_at_most_what_poll_takes(void **state)
{
    assert_int_equal(clock_poll_ms(UINT64_MAX - 1, 0), INT_MAX);
}

/* --- text ------------------------------------------------------------------------------------ */

static void text_is_appended_while_it_fits(void **state)
{
    char text[12] = "";
    assert_true(text_append(text, sizeof text, "rank %d", 3));
    assert_true(text_append(text, sizeof text, ", %d", 12));
    assert_string_equal(text, "rank 3, 12");
}

static void text_that_fills_the_buffer_exactly_is_whole(void **state)
{
    char text[7] = "";
    assert_true(text_append(text, sizeof text, "123456"));
    assert_string_equal(text, "123456");
}

static void text_that_does_not_fit_ends_in_dots(void **state)
{
    char text[8] = "ab";
    assert_false(text_append(text, sizeof text, "%s", "cdefghij"));
    assert_string_equal(text, "abcd...");
    assert_false(text_append(text, sizeof text, "more"));
    assert_string_equal(text, "abcd...");
}

static void a_character_of_several_bytes_is_not_cut(void **state)
{
    for (size_t ascii = 0; ascii < 8; ascii++) {
        char text[16] = "";
        assert_false(text_append(text, sizeof text, "%.*s\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac",
                                 (int)ascii, "abcdefgh"));
        assert_true(text_is_utf8(text));
        assert_non_null(strstr(text, "\u20ac..."));
    }
}

static void text_in_a_tiny_buffer_stays_terminated(void **state)
{
    for (size_t bytes = 1; bytes < 6; bytes++) {
        char text[8] = {0};
        memset(text + bytes, '#', sizeof text - bytes);
        assert_false(text_append(text, bytes, "a long text"));
        assert_true(strnlen(text, bytes) < bytes);
        assert_int_equal(text[bytes], '#');
    }
}

static void a_unique_name_differs_each_time_and_has_the_processes_number(void **state)
{
    char one[UNIQUE_BYTES], other[UNIQUE_BYTES], start[32];
    unique_name("run", one, sizeof one);
    unique_name("run", other, sizeof other);
    assert_string_not_equal(one, other);
    snprintf(start, sizeof start, "run-%d-", (int)getpid());
    assert_memory_equal(one, start, strlen(start));
}

static void a_disarmed_text_has_no_character_that_a_terminal_obeys(void **state)
{
    static const struct {
        const char *text, *disarmed;
    } cases[] = {{"plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", NULL},
                 {"\x1b[2J\x07\n\t\x7f", "?[2J????"},
                 {"\xc2\x80 \xc2\x9f \xc2\xa0", "?? ?? \xc2\xa0"},
                 {"\xe2\x80\xae \xe2\x81\xa6 \xe2\x80\x8f \xd8\x9c", "??? ??? ??? ??"},
                 {"\xe2\x80\xa8 \xef\xbf\xb9", "??? ???"},
                 {"\xff \xc3", "? ?"},
                 {"", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        struct err err;
        snprintf(text, sizeof text, "%s", cases[i].text);
        assert_int_equal(text_is_harmless(text), cases[i].disarmed == NULL);
        err_set(&err, -EINVAL, "%s", text);
        text_disarm(text);
        assert_true(text_is_harmless(text));
        assert_string_equal(text, cases[i].disarmed ? cases[i].disarmed : cases[i].text);
        assert_string_equal(err.text, text);
    }
}

static void text_is_utf8_in_its_shortest_form_only(void **state)
{
    static const char *const good[] = {"",
                                       "resnet-7",
                                       "modèle",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x9a\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\xff",         "a\xc3",
                                      "\x80",         "\xc0\xaf",
                                      "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",
                                      "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xe2\x82"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(text_is_utf8(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(text_is_utf8(bad[i]));
}

static void a_number_is_read_between_its_bounds(void **state)
{
    uint64_t value = 99;
    assert_int_equal(text_parse_u64("0", 0, 10, &value), 0);
    assert_int_equal(value, 0);
    assert_int_equal(text_parse_u64("010", 10, 10, &value), 0);
    assert_int_equal(value, 10);
    assert_int_equal(text_parse_u64("18446744073709551615", 0, UINT64_MAX, &value), 0);
    assert_true(value == UINT64_MAX);
}

static void a_number_out_of_bounds_is_a_range_error(void **state)
{
    static const char *const bad[] = {"2", "11", "18446744073709551616", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t value = 99;
        assert_int_equal(text_parse_u64(bad[i], 3, 10, &value), -ERANGE);
        assert_int_equal(value, 99);
    }
}

static void a_text_that_is_not_a_whole_number_is_refused(void **state)
{
    static const char *const bad[] = {"", " 1", "1 ", "+1", "-1", "1.0", "0x1", "1k", "one"};
    uint64_t value = 99;
    assert_int_equal(text_parse_u64(NULL, 0, 10, &value), -EINVAL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(text_parse_u64(bad[i], 0, 10, &value), -EINVAL);
    assert_int_equal(value, 99);
}

static void bytes_are_written_in_the_largest_unit(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1536, "1.5 KiB"},
        {UINT64_C(4) << 20, "4 MiB"},
        {(UINT64_C(3) << 30) / 2, "1.5 GiB"},
        {UINT64_C(2048) << 40, "2048 TiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        assert_string_equal(text_bytes(cases[i].bytes, text, sizeof text), cases[i].text);
    }
}

/* --- errors ---------------------------------------------------------------------------------- */

static void a_code_has_plain_words_with_either_sign(void **state)
{
    assert_string_equal(err_text(-ECONNREFUSED), "Connection refused");
    assert_string_equal(err_text(ECONNREFUSED), "Connection refused");
    assert_string_equal(err_text(0), "success");
}

static void an_unknown_code_has_a_text(void **state)
{
    assert_string_equal(err_text(-123456), "unknown error");
    assert_string_equal(err_text(INT_MIN), "unknown error");
}

static void an_error_keeps_code_and_sentence_and_returns_the_code(void **state)
{
    struct err err = {0};
    assert_int_equal(err_set(&err, -EINVAL, "rank %d of %d", 7, 4), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err.text, "rank 7 of 4");
}

static void an_error_without_a_struct_err_still_returns_the_code(void **state)
{
    assert_int_equal(err_set(NULL, -EPROTO, "%s", "x"), -EPROTO);
}

static void a_shortage_names_the_limit_its_value_and_its_option(void **state)
{
    char text[SHORTAGE_BYTES], value[32];
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    snprintf(value, sizeof value, "is %llu;", (unsigned long long)limit.rlim_cur);
    shortage_text(-EMFILE, SHORTAGE_THREADS, text, sizeof text);
    assert_non_null(strstr(text, "Too many open files: the limit of open files (RLIMIT_NOFILE)"));
    assert_non_null(strstr(text, value));
    assert_non_null(strstr(text, "ulimit -n"));
    shortage_text(-EAGAIN, SHORTAGE_THREADS, text, sizeof text);
    assert_non_null(strstr(text, "ulimit -"));
    assert_string_equal(shortage_text(-EAGAIN, SHORTAGE_OTHER, text, sizeof text),
                        err_text(-EAGAIN));
    assert_string_equal(shortage_text(-EPROTO, SHORTAGE_THREADS, text, sizeof text),
                        err_text(-EPROTO));
}

static void only_eperm_and_enosys_count_as_refusals(void **state)
{
    assert_true(shortage_is_refusal(-EPERM) && shortage_is_refusal(-ENOSYS));
    assert_false(shortage_is_refusal(0) || shortage_is_refusal(-EACCES));
}

static void a_long_sentence_is_cut_at_its_room(void **state)
{
    struct err err;
    err_set(&err, -EINVAL, "%0*d", ERR_TEXT_BYTES * 2, 1);
    assert_int_equal(strlen(err.text), ERR_TEXT_BYTES - 1);
}

/* --- log ------------------------------------------------------------------------------------- */

static char logged[2048];

static void keep(enum log_level level, const char *line)
{
    text_append(logged, sizeof logged, "%d:%s;", (int)level, line);
}

static int hook_log(void **state)
{
    logged[0] = '\0';
    unsetenv("GRADPOOL_LOG_LEVEL");
    log_init("test");
    log_set_hook(keep);
    return 0;
}

static int unhook_log(void **state)
{
    log_set_hook(NULL);
    unsetenv("GRADPOOL_LOG_LEVEL");
    return 0;
}

static void a_program_logs_from_info_upwards(void **state)
{
    log_error("e %d", 1);
    log_warn("w");
    log_info("i");
    log_debug("d");
    assert_string_equal(logged, "0:e 1;1:w;2:i;");
}

static void errors_of_peers_are_logged_once_a_second_with_a_count(void **state)
{
    struct log_rate rate = {0};
    for (int i = 0; i < 5; i++)
        log_write_rarely(&rate, LOG_LEVEL_WARN, "go away %d", i);
    assert_string_equal(logged, "1:go away 0;");
    rate.next_ns = 0; /* the test sets the limiter as if a second had passed */
    log_write_rarely(&rate, LOG_LEVEL_WARN, "go away %d", 5);
    assert_string_equal(logged, "1:go away 0;1:go away 5 (and 4 more like it before);");
}

static void a_client_logs_from_warnings_upwards(void **state)
{
    log_init("client");
    log_warn("w");
    log_info("i");
    assert_string_equal(logged, "1:w;");
}

static void the_environment_sets_the_level(void **state)
{
    setenv("GRADPOOL_LOG_LEVEL", "debug", 1);
    assert_int_equal(log_init("test"), 0);
    log_debug("d");
    setenv("GRADPOOL_LOG_LEVEL", "error", 1);
    assert_int_equal(log_init("test"), 0);
    log_warn("w");
    assert_string_equal(logged, "3:d;");
}

static void an_unknown_level_is_an_error_and_leaves_the_default(void **state)
{
    setenv("GRADPOOL_LOG_LEVEL", "loud", 1);
    assert_int_equal(log_init("test"), -EINVAL);
    log_info("i");
    log_debug("d");
    assert_string_equal(logged, "1:GRADPOOL_LOG_LEVEL=loud: expected error, warn, info, debug or "
                                "trace; using info;2:i;");
}

/* Captures the lines logged by `say` on standard error. */
static void capture(void (*say)(void), char *text, size_t text_bytes)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int before = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    say();
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[1]);
    ssize_t got = read(ends[0], text, text_bytes - 1);
    assert_true(got >= 0);
    text[got] = '\0';
    close(ends[0]);
}

static void say_plain(void) { log_info("job %s: rank %d joined", "resnet", 2); }
static void say_hostile(void)
{
    log_info("job \"a\"\nlevel=error who=\"x\\y\"\x1b[31m \xc2\x9b"
             "2J \xe2\x80\xaegnp.");
}
static void say_long(void) { log_info("%0*d", 4096, 7); }

static void a_log_line_has_time_level_source_and_text(void **state)
{
    char line[512];
    log_set_hook(NULL);
    unsetenv("JOURNAL_STREAM");
    capture(say_plain, line, sizeof line);
    assert_int_equal(strncmp(line, "time=20", 7), 0);
    assert_int_equal(
        strcmp(strchr(line, 'Z'), "Z level=info who=\"test\" msg=\"job resnet: rank 2 joined\"\n"),
        0);
}

static void under_the_journal_a_line_has_no_time(void **state)
{
    char line[512];
    log_set_hook(NULL);
    setenv("JOURNAL_STREAM", "8:1", 1);
    capture(say_plain, line, sizeof line);
    unsetenv("JOURNAL_STREAM");
    assert_string_equal(line, "level=info who=\"test\" msg=\"job resnet: rank 2 joined\"\n");
}

static void a_name_from_outside_cannot_forge_a_line(void **state)
{
    char line[512];
    log_set_hook(NULL);
    capture(say_hostile, line, sizeof line);
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    assert_null(strchr(line, '\x1b'));
    assert_non_null(strstr(line, "msg=\"job 'a' level=error who='x/y' [31m ??2J ???gnp.\"\n"));
}

static void a_long_line_is_cut_and_still_ends(void **state)
{
    char line[8192];
    log_set_hook(NULL);
    capture(say_long, line, sizeof line);
    assert_true(strlen(line) < 1500);
    assert_string_equal(line + strlen(line) - 5, "...\"\n");
}

/* --- lists ----------------------------------------------------------------------------------- */

struct thing {
    int number;
    struct list node;
};

static void expect_numbers(struct list *head, const char *wanted)
{
    char found[64] = "";
    list_for_each (node, head)
        text_append(found, sizeof found, "%d ", list_entry(node, struct thing, node)->number);
    assert_string_equal(found, wanted);
}

static void a_list_keeps_the_order_of_appending(void **state)
{
    struct list head;
    struct thing a = {1}, b = {2}, c = {3};
    list_init(&head);
    assert_true(list_is_empty(&head));
    assert_null(list_first(&head));
    list_append(&head, &a.node);
    list_append(&head, &b.node);
    list_prepend(&head, &c.node);
    expect_numbers(&head, "3 1 2 ");
    assert_ptr_equal(list_first(&head), &c.node);
}

static void a_node_may_be_removed_twice(void **state)
{
    struct list head;
    struct thing a = {1}, b = {2};
    list_init(&head);
    list_append(&head, &a.node);
    list_append(&head, &b.node);
    list_remove(&a.node);
    list_remove(&a.node);
    expect_numbers(&head, "2 ");
    list_remove(&b.node);
    assert_true(list_is_empty(&head));
}

static void the_current_node_may_be_removed_in_a_safe_loop(void **state)
{
    struct list head;
    struct thing things[6];
    list_init(&head);
    for (int i = 0; i < 6; i++) {
        things[i].number = i;
        list_append(&head, &things[i].node);
    }
    list_for_each_safe (node, &head)
        if (list_entry(node, struct thing, node)->number % 2 == 0)
            list_remove(node);
    expect_numbers(&head, "1 3 5 ");
}

/* --- scope-bound release --------------------------------------------------------------------- */

static int open_null(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }
static int is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static int acquire_and_fail(void)
{
    _cleanup_fd_ int fd = open_null();
    _cleanup_free_ char *memory = malloc(16);
    memory[0] = 'x';
    return fd;
}

static int acquire_and_hand_on(char **ret_memory)
{
    _cleanup_fd_ int fd = open_null();
    _cleanup_free_ char *memory = strdup("kept");
    *ret_memory = take_ptr(memory);
    assert_null(memory);
    return take_fd(&fd);
}

static void resources_of_a_scope_are_released_at_its_end(void **state)
{
    assert_false(is_open(acquire_and_fail()));
}

static void a_resource_taken_out_of_a_scope_survives_the_scope(void **state)
{
    char *memory;
    int fd = acquire_and_hand_on(&memory);
    assert_true(is_open(fd));
    assert_string_equal(memory, "kept");
    close(fd);
    free(memory);
}

#define log_test(name) cmocka_unit_test_setup_teardown(name, hook_log, unhook_log)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_never_runs_backwards),
        cmocka_unit_test(cpu_clocks_count_work_and_not_waiting),
        cmocka_unit_test(a_deadline_is_now_plus_milliseconds),
        cmocka_unit_test(no_deadline_is_the_end_of_time),
        cmocka_unit_test(a_far_deadline_does_not_wrap_around),
        cmocka_unit_test(a_poll_time_is_rounded_up_so_that_no_thread_wakes_early),
        cmocka_unit_test(a_past_deadline_polls_without_waiting),
        cmocka_unit_test(a_poll_time_is_at_most_what_poll_takes),
        cmocka_unit_test(text_is_appended_while_it_fits),
        cmocka_unit_test(text_that_fills_the_buffer_exactly_is_whole),
        cmocka_unit_test(text_that_does_not_fit_ends_in_dots),
        cmocka_unit_test(a_character_of_several_bytes_is_not_cut),
        cmocka_unit_test(text_in_a_tiny_buffer_stays_terminated),
        cmocka_unit_test(a_unique_name_differs_each_time_and_has_the_processes_number),
        cmocka_unit_test(text_is_utf8_in_its_shortest_form_only),
        cmocka_unit_test(a_disarmed_text_has_no_character_that_a_terminal_obeys),
        cmocka_unit_test(a_number_is_read_between_its_bounds),
        cmocka_unit_test(a_number_out_of_bounds_is_a_range_error),
        cmocka_unit_test(a_text_that_is_not_a_whole_number_is_refused),
        cmocka_unit_test(bytes_are_written_in_the_largest_unit),
        cmocka_unit_test(a_code_has_plain_words_with_either_sign),
        cmocka_unit_test(an_unknown_code_has_a_text),
        cmocka_unit_test(an_error_keeps_code_and_sentence_and_returns_the_code),
        cmocka_unit_test(an_error_without_a_struct_err_still_returns_the_code),
        cmocka_unit_test(a_shortage_names_the_limit_its_value_and_its_option),
        cmocka_unit_test(only_eperm_and_enosys_count_as_refusals),
        cmocka_unit_test(a_long_sentence_is_cut_at_its_room),
        log_test(a_program_logs_from_info_upwards),
        log_test(a_client_logs_from_warnings_upwards),
        log_test(errors_of_peers_are_logged_once_a_second_with_a_count),
        log_test(the_environment_sets_the_level),
        log_test(an_unknown_level_is_an_error_and_leaves_the_default),
        log_test(a_log_line_has_time_level_source_and_text),
        log_test(under_the_journal_a_line_has_no_time),
        log_test(a_name_from_outside_cannot_forge_a_line),
        log_test(a_long_line_is_cut_and_still_ends),
        cmocka_unit_test(a_list_keeps_the_order_of_appending),
        cmocka_unit_test(a_node_may_be_removed_twice),
        cmocka_unit_test(the_current_node_may_be_removed_in_a_safe_loop),
        cmocka_unit_test(resources_of_a_scope_are_released_at_its_end),
        cmocka_unit_test(a_resource_taken_out_of_a_scope_survives_the_scope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
