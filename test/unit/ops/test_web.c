/* Tests the web server with slow readers, silent readers, many readers, and invalid requests. The
 * server limits the number, the bytes and the time of readers, and no reader may delay another. The
 * test sets the time, so no case waits for a deadline. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/base/clock.h"
#include "svc/base/text.h"
#include "svc/ops/web/web.h"
#include "test/unit/ops/snapshot_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define CROWD 1000
#define PATIENCE_NS (60 * NS_PER_S)
#define ANSWER_BYTES_MAX (1 << 20)

uint64_t __real_clock_now_ns(void);
uint64_t __wrap_clock_now_ns(void);

static uint64_t skipped_ns;  /* time that is added to the real time of the server */
static uint64_t standing_ns; /* time at which the server's clock stands still; 0: the clock runs */

uint64_t __wrap_clock_now_ns(void)
{
    return standing_ns ? standing_ns : __real_clock_now_ns() + skipped_ns;
}

static struct web *web;
static uint16_t port;

static int start(void **state)
{
    struct err err;
    skipped_ns = standing_ns = 0;
    assert_int_equal(web_create("127.0.0.1:0", "1.2.3", &web, &err), 0);
    uint64_t number;
    assert_int_equal(text_parse_u64(strrchr(web_url(web), ':') + 1, 1, UINT16_MAX, &number), 0);
    port = (uint16_t)number;
    return 0;
}

static int stop(void **state)
{
    web_destroy(web);
    return 0;
}

static void show(void)
{
    struct rig_service now = rig_before();
    envelope *status, *jobs;
    rig_replies(&now, &status, &jobs);
    web_show(web, status, jobs);
}

/* Makes a service with `jobs_count` jobs without a lane. */
static void show_many(uint32_t jobs_count)
{
    struct rig_service now = rig_before();
    envelope *status, *jobs;
    now.more_jobs = jobs_count;
    rig_replies(&now, &status, &jobs);
    web_show(web, status, jobs);
}

/* Runs one turn of the coordinator's loop. Waits at most some milliseconds. */
static void turn(void)
{
    static uint64_t next_ns;
    struct pollfd fd = {.fd = web_fd(web), .events = POLLIN};
    poll(&fd, 1, next_ns <= __wrap_clock_now_ns() ? 0 : 2);
    next_ns = web_run(web);
}

static int connect_now(int receive_bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (receive_bytes)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    ssize_t sent = send(fd, text, strlen(text), MSG_NOSIGNAL);
    (void)sent; /* the send fails if the server has closed the connection */
}

/* Reads available bytes. Returns 1 if more may follow, and 0 at the end. */
static int read_some(int fd, char *text, size_t *bytes)
{
    ssize_t got = recv(fd, text + *bytes, ANSWER_BYTES_MAX - 1 - *bytes, 0);
    if (got > 0)
        *bytes += (size_t)got;
    text[*bytes] = '\0';
    return got > 0 || (got < 0 && errno == EAGAIN);
}

/* Reads all bytes until the server closes the connection. The caller frees them. */
static char *read_all(int fd)
{
    char *text = calloc(1, ANSWER_BYTES_MAX);
    size_t bytes = 0;
    uint64_t deadline_ns = __real_clock_now_ns() + PATIENCE_NS;
    assert_non_null(text);
    while (read_some(fd, text, &bytes)) {
        assert_true(__real_clock_now_ns() < deadline_ns);
        turn();
    }
    close(fd);
    return text;
}

static char *request(const char *text)
{
    int fd = connect_now(0);
    say(fd, text);
    return read_all(fd);
}

static char *get(const char *path)
{
    char text[256];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path);
    return request(text);
}

static void has(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("no %s in %.2000s", part, text ? text : "");
}

static void answers(const char *path, const char *first, const char *second)
{
    char *text = get(path);
    has(text, first);
    has(text, second);
    free(text);
}

static bool is_closed(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN);
}

static void until_closed(int fd)
{
    uint64_t deadline_ns = __real_clock_now_ns() + PATIENCE_NS;
    while (!is_closed(fd)) {
        assert_true(__real_clock_now_ns() < deadline_ns);
        turn();
    }
}

/* --- cases --- */

static void each_page_has_its_content_type(void **state)
{
    show();
    answers("/metrics", "HTTP/1.1 200", "Content-Type: text/plain; version=0.0.4");
    answers("/metrics", "gradpool_build_info{version=\"1.2.3\"} 1\n", "gradpool_lane_cpu_seconds");
    answers("/report", "Content-Type: text/html; charset=utf-8", "<svg ");
    answers("/", "Content-Security-Policy: default-src 'none'", "<svg ");
    answers("/report.json", "Content-Type: application/json", "\"history\"");
    answers("/healthz", "HTTP/1.1 200", "\r\n\r\nok\n");
    answers("/nothing", "HTTP/1.1 404", "/metrics");
}

static void the_server_is_not_ready_before_the_first_snapshot(void **state)
{
    answers("/metrics", "HTTP/1.1 503", "no data yet");
    answers("/healthz", "HTTP/1.1 503", "no data yet");
}

static void an_aggregator_that_is_not_up_is_unhealthy(void **state)
{
    struct rig_service now = rig_before();
    envelope *status, *jobs;
    now.state = "silent";
    rig_replies(&now, &status, &jobs);
    web_show(web, status, jobs);
    answers("/healthz", "HTTP/1.1 503", "aggregator 1 is silent");
}

static void nothing_can_be_changed(void **state)
{
    static const char *const methods[] = {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"};
    show();
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s /report HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
                 methods[i]);
        char *answer = request(text);
        has(answer, "HTTP/1.1 405");
        has(answer, "Allow: GET, HEAD");
        free(answer);
    }
    char *answer = request("HEAD /report HTTP/1.1\r\nHost: h\r\n\r\n");
    has(answer, "HTTP/1.1 200");
    assert_null(strstr(answer, "<svg"));
    free(answer);
}

static void a_request_other_than_http_is_refused_and_others_are_answered(void **state)
{
    static const char *const rude[] = {
        "\r\n\r\n\r\n",
        "garbage\r\n\r\n",
        "GET\r\n\r\n",
        "\x16\x03\x01\x02",
        "GET /metrics\r\n\r\n",
        "GET /metrics HTTP/9.9\r\n\r\n",
        "GET /report HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        "POST /report HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"};
    show();
    for (size_t i = 0; i < sizeof rude / sizeof *rude; i++) {
        int fd = connect_now(0);
        say(fd, rude[i]);
        shutdown(fd, SHUT_WR);
        for (int j = 0; j < 10; j++)
            turn();
        /* the server waits a limited time for the rest of an incomplete request */
        skipped_ns += WEB_DEADLINE_MS * NS_PER_MS;
        char *answer = read_all(fd);
        assert_null(strstr(answer, "HTTP/1.1 200"));
        free(answer);
    }
    answers("/healthz", "HTTP/1.1 200", "ok");
}

static void a_request_that_is_too_long_is_refused(void **state)
{
    size_t bytes = 20 * WEB_REQUEST_BYTES_MAX;
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    show();
    for (int kind = 0; kind < 2; kind++) { /* first a long path, then a long header */
        memset(text, 'a', bytes);
        text[bytes] = '\0';
        memcpy(text, kind ? "GET / HTTP/1.1\r\nX: " : "GET /", kind ? 19 : 5);
        int fd = connect_now(0);
        say(fd, text);
        char *answer = read_all(fd);
        assert_null(strstr(answer, "HTTP/1.1 200"));
        free(answer);
    }
    free(text);
    answers("/healthz", "HTTP/1.1 200", "ok");
}

static void a_silent_connection_is_closed_at_the_deadline(void **state)
{
    int fd = connect_now(0);
    show();
    answers("/healthz", "HTTP/1.1 200", "ok");
    skipped_ns += (WEB_DEADLINE_MS - 1000) * NS_PER_MS;
    turn();
    assert_false(is_closed(fd));
    skipped_ns += 1000 * NS_PER_MS;
    until_closed(fd);
    close(fd);
}

static void bytes_now_and_then_do_not_move_the_deadline(void **state)
{
    int fd = connect_now(0);
    show();
    /* the next bytes continue the path, because libmicrohttpd 1.0 answers a wrong version */
    say(fd, "GET /report");
    for (int i = 0; i < 10 && !is_closed(fd); i++) {
        skipped_ns += WEB_DEADLINE_MS / 10 * NS_PER_MS;
        say(fd, "t");
        turn();
    }
    until_closed(fd);
    close(fd);
}

static void a_slow_reader_delays_no_other_and_is_closed_at_the_deadline(void **state)
{
    int slow = connect_now(1024);
    show_many(3000);
    say(slow, "GET /report HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < 20; i++)
        turn();
    answers("/healthz", "HTTP/1.1 200", "ok");
    answers("/metrics", "HTTP/1.1 200", "gradpool_left_out{of=\"jobs\"} 2002\n");
    skipped_ns += WEB_DEADLINE_MS * NS_PER_MS;
    for (int i = 0; i < 20; i++)
        turn();
    char *text = read_all(slow);
    has(text, "HTTP/1.1 200");
    assert_null(strstr(text, "</html>"));
    free(text);
}

static void a_reader_during_a_new_snapshot_gets_the_whole_old_page(void **state)
{
    int slow = connect_now(65536); /* the buffer is much smaller than the page */
    standing_ns = clock_now_ns();  /* from here the server's time does not advance */
    show_many(3000);
    say(slow, "GET /report HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < 20; i++)
        turn();
    show();
    char *text = read_all(slow);
    has(text, "job-2999");
    has(text, "</html>");
    free(text);
}

static void a_crowd_of_clients_is_answered_completely(void **state)
{
    static int fds[CROWD];
    show();
    for (int i = 0; i < CROWD; i++) {
        fds[i] = connect_now(0);
        say(fds[i], "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for (int i = 0; i < CROWD; i++) {
        char *text = read_all(fds[i]);
        has(text, "gradpool_left_out{of=\"lane_jobs\"}");
        free(text);
    }
}

static size_t descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 8192; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void silent_clients_hold_few_places_and_are_dropped_first(void **state)
{
    static int fds[CROWD];
    show();
    size_t before = descriptors();
    for (int i = 0; i < CROWD; i++)
        fds[i] = connect_now(0);
    for (int i = 0; i < 20; i++)
        turn();
    assert_int_equal(descriptors(), before + CROWD + WEB_CONNECTIONS_MAX);
    int fd = connect_now(0);
    say(fd, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < 2 * CROWD / WEB_CONNECTIONS_MAX; i++) {
        skipped_ns += WEB_CROWDED_MS * NS_PER_MS;
        for (int j = 0; j < 5; j++)
            turn();
        assert_true(descriptors() <= before + CROWD + 1 + WEB_CONNECTIONS_MAX);
    }
    char *text = read_all(fd);
    has(text, "HTTP/1.1 200");
    free(text);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
}

static void an_idle_server_sets_no_timer(void **state)
{
    show();
    answers("/healthz", "HTTP/1.1 200", "ok");
    turn();
    assert_true(web_run(web) == UINT64_MAX);
    struct pollfd fd = {.fd = web_fd(web), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 0), 0);
}

static void an_invalid_address_is_refused_with_the_expected_form(void **state)
{
    static const char *const wrong[] = {"",     "7078",  "127.0.0.1", "127.0.0.1:",    "[::1]",
                                        "h:-1", "h:1:2", "unix:/x:1", "http://h:7078", "h:70000"};
    struct web *none = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err;
        assert_int_equal(web_create(wrong[i], "1", &none, &err), -EINVAL);
        has(err.text, "expected ADDRESS:PORT");
    }
    assert_null(none);
}

static void a_port_in_use_is_reported(void **state)
{
    char address[64];
    struct web *none = NULL;
    struct err err;
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    assert_int_equal(web_create(address, "1", &none, &err), -EADDRINUSE);
    /* the error must not name the coordinator's own port */
    assert_non_null(strstr(err.text, "--http 127.0.0.1"));
    has(err.text, address);
    assert_null(none);
    assert_true(web_is_loopback(web));
}

int main(void)
{
    struct rlimit most;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_page_has_its_content_type, start, stop),
        cmocka_unit_test_setup_teardown(the_server_is_not_ready_before_the_first_snapshot, start,
                                        stop),
        cmocka_unit_test_setup_teardown(an_aggregator_that_is_not_up_is_unhealthy, start, stop),
        cmocka_unit_test_setup_teardown(nothing_can_be_changed, start, stop),
        cmocka_unit_test_setup_teardown(
            a_request_other_than_http_is_refused_and_others_are_answered, start, stop),
        cmocka_unit_test_setup_teardown(a_request_that_is_too_long_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(a_silent_connection_is_closed_at_the_deadline, start, stop),
        cmocka_unit_test_setup_teardown(bytes_now_and_then_do_not_move_the_deadline, start, stop),
        cmocka_unit_test_setup_teardown(a_slow_reader_delays_no_other_and_is_closed_at_the_deadline,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_reader_during_a_new_snapshot_gets_the_whole_old_page,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_crowd_of_clients_is_answered_completely, start, stop),
        cmocka_unit_test_setup_teardown(silent_clients_hold_few_places_and_are_dropped_first, start,
                                        stop),
        cmocka_unit_test_setup_teardown(an_idle_server_sets_no_timer, start, stop),
        cmocka_unit_test(an_invalid_address_is_refused_with_the_expected_form),
        cmocka_unit_test_setup_teardown(a_port_in_use_is_reported, start, stop),
    };
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &most), 0);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
