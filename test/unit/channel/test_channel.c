/* Tests the control connection. The stream may divide messages at any byte, and whole messages must
 * arrive in order. Other cases: a peer that sends invalid bytes, does not read, or disconnects. */
#include "test/unit/channel/channel_pair.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>

/* --- messages -------------------------------------------------------------------------------- */

static void a_message_arrives_as_it_was_sent(void **state)
{
    int fds[2];
    struct channel *a, *b;
    struct failure f;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(channel_create(fds[0], &a), 0);
    assert_int_equal(channel_create(fds[1], &b), 0);
    for (int i = 1; i < 100; i++)
        assert_int_equal(channel_send(a, failure_init(&f, (uint64_t)i, -i, "over there")), 0);
    for (int i = 1; i < 100; i++)
        expect_failure(receive_wait(b), (uint64_t)i, -i, "over there");
    envelope *none;
    assert_int_equal(channel_receive(b, &none), -EAGAIN);
    channel_destroy(a);
    assert_int_equal(channel_receive(b, &none), -ECONNRESET);
    expect_text(channel_failure(b), "the peer closed the connection");
    channel_destroy(b);
}

static void the_frame_is_a_little_endian_length_and_an_envelope(void **state)
{
    struct pair pair = pair_open();
    struct failure f;
    uint8_t got[64], *expected;
    size_t bytes;
    failure_init(&f, 7, -EINVAL, "no");
    expected = frame(&f.envelope, &bytes);
    assert_int_equal(channel_send(pair.channel, &f.envelope), 0);
    assert_int_equal(recv(pair.peer, got, sizeof got, 0), bytes);
    assert_memory_equal(got, expected, bytes);
    assert_int_equal(got[0], bytes - 4);
    assert_int_equal(got[1] | got[2] | got[3], 0);
    free(expected);
    pair_close(&pair);
}

static void a_message_that_dribbles_in_byte_by_byte_is_whole(void **state)
{
    struct pair pair = pair_open();
    struct failure f;
    envelope *message;
    size_t bytes;
    uint8_t *out = frame(failure_init(&f, 1, -EPERM, "drop by drop"), &bytes);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(channel_receive(pair.channel, &message), -EAGAIN);
            put(pair.peer, out + i, 1);
        }
        assert_int_equal(channel_receive(pair.channel, &message), 0);
        expect_failure(message, 1, -EPERM, "drop by drop");
    }
    free(out);
    pair_close(&pair);
}

static void messages_that_come_together_are_taken_one_by_one(void **state)
{
    struct pair pair = pair_open();
    struct failure f;
    for (uint64_t i = 1; i <= 150; i++)
        put_message(pair.peer, failure_init(&f, i, -1, "one of many"));
    close(pair.peer);
    pair.peer = -1;
    for (uint64_t i = 1; i <= 150; i++)
        expect_failure(receive_wait(pair.channel), i, -1, "one of many");
    envelope *message;
    assert_int_equal(channel_receive(pair.channel, &message), -ECONNRESET);
    pair_close(&pair);
}

/* Sends a message that both ends handle in many steps, and counts the steps. */
static void a_message_of_nearly_the_maximum_length_arrives_in_parts(void **state)
{
    int fds[2];
    struct channel *a, *b;
    size_t length = CHANNEL_FRAME_BYTES_MAX - 100;
    char *text = malloc(length + 1);
    struct failure f;
    envelope *message;
    int r, parts = 0;
    assert_non_null(text);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)('a' + i % 23);
    text[length] = '\0';
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(channel_create(fds[0], &a), 0);
    assert_int_equal(channel_create(fds[1], &b), 0);
    assert_int_equal(channel_events(a), EPOLLIN);
    assert_int_equal(channel_send(a, failure_init(&f, 9, -9, text)), 0);
    assert_int_equal(channel_events(a), EPOLLIN | EPOLLOUT);
    while ((r = channel_receive(b, &message)) == -EAGAIN) {
        assert_int_equal(channel_flush(a), 0);
        parts++;
    }
    assert_int_equal(r, 0);
    assert_true(parts > 1);
    assert_int_equal(channel_events(a), EPOLLIN);
    expect_failure(message, 9, -9, text);
    channel_destroy(a);
    channel_destroy(b);
    free(text);
}

static void a_message_above_the_maximum_length_is_not_sent(void **state)
{
    struct pair pair = pair_open();
    char *text = malloc(CHANNEL_FRAME_BYTES_MAX + 1);
    struct failure f;
    char byte;
    assert_non_null(text);
    memset(text, 'x', CHANNEL_FRAME_BYTES_MAX);
    text[CHANNEL_FRAME_BYTES_MAX] = '\0';
    assert_int_equal(channel_send(pair.channel, failure_init(&f, 1, -1, text)), -EMSGSIZE);
    assert_int_equal(channel_send(pair.channel, failure_init(&f, 1, -1, "short")), -EMSGSIZE);
    assert_int_equal(recv(pair.peer, &byte, 1, MSG_DONTWAIT), -1);
    free(text);
    pair_close(&pair);
}

static void an_empty_envelope_is_not_sent(void **state)
{
    struct pair pair = pair_open();
    envelope empty = GRADPOOL__WIRE__ENVELOPE__INIT;
    assert_int_equal(channel_send(pair.channel, &empty), -EMSGSIZE);
    pair_close(&pair);
}

static void a_peer_that_does_not_read_is_given_up_at_the_backlog(void **state)
{
    struct pair pair = pair_open();
    size_t length = 1u << 20;
    char *text = malloc(length + 1);
    struct failure f;
    size_t sent = 0;
    int r;
    assert_non_null(text);
    memset(text, 'x', length);
    text[length] = '\0';
    failure_init(&f, 1, -1, text);
    while ((r = channel_send(pair.channel, &f.envelope)) == 0)
        sent++;
    assert_int_equal(r, -ENOBUFS);
    assert_in_range(sent * length, CHANNEL_BACKLOG_BYTES_MAX - 2 * length,
                    CHANNEL_BACKLOG_BYTES_MAX + 2 * length);
    expect_text(channel_failure(pair.channel), "does not read");
    assert_int_equal(channel_flush(pair.channel), -ENOBUFS);
    free(text);
    pair_close(&pair);
}

static void a_peer_that_is_gone_is_an_error_and_no_signal(void **state)
{
    struct pair pair = pair_open();
    struct failure f;
    close(pair.peer);
    pair.peer = -1;
    assert_int_equal(channel_send(pair.channel, failure_init(&f, 1, -1, "hello?")), -ECONNRESET);
    expect_text(channel_failure(pair.channel), "connection lost: Broken pipe");
    pair_close(&pair);
}

/* --- invalid bytes --------------------------------------------------------------------------- */

static void expect_nonsense(const void *bytes, size_t count, const char *part)
{
    struct pair pair = pair_open();
    envelope *message = NULL;
    put(pair.peer, bytes, count);
    assert_int_equal(channel_receive(pair.channel, &message), -EBADMSG);
    assert_null(message);
    expect_text(channel_failure(pair.channel), part);
    expect_text(channel_failure(pair.channel), "unix pid");
    assert_int_equal(channel_receive(pair.channel, &message), -EBADMSG);
    pair_close(&pair);
}

static void an_impossible_length_is_reported_as_another_protocol(void **state)
{
    expect_nonsense("GET / HTTP/1.1\r\n\r\n", 18,
                    "not a gradpool endpoint? first bytes 47 45 54 20 2f 20 48 54");
    expect_nonsense("\0\0\0\0", 4, "got one of 0; not a gradpool endpoint? first bytes 00 00");
    expect_nonsense("\x01\0\0\x01", 4, "got one of 16777217");
    expect_nonsense("\xff\xff\xff\xff", 4, "got one of 4294967295");
}

static void bytes_that_are_no_message_are_refused(void **state)
{
    expect_nonsense("\x03\0\0\0\xff\xff\xff", 7,
                    "got 3 bytes of another format (first bytes ff ff ff)");
    /* the stated length of the body exceeds the frame */
    expect_nonsense("\x02\0\0\0\x12\x7f", 6, "got 2 bytes of another format");
}

/* A TensorSpec has two bytes on the wire, and about sixty in memory. */
static void a_message_that_unpacks_into_much_more_memory_is_refused(void **state)
{
    struct pair pair = pair_open();
    size_t specs = 4u << 20, bytes = 2 * specs;
    uint8_t head[] = {0, 0, 0, 0, 0x6a, 0x80, 0x80, 0x80, 0x04}; /* field 13 with 8 MiB */
    uint8_t *body = malloc(bytes);
    envelope *message;
    size_t put_bytes = 0;
    int r;
    assert_non_null(body);
    for (size_t i = 0; i < specs; i++)
        memcpy(body + 2 * i, "\x0a\x00", 2);
    size_t frame_bytes = sizeof head - 4 + bytes;
    for (int i = 0; i < 4; i++)
        head[i] = (uint8_t)(frame_bytes >> (8 * i));
    put(pair.peer, head, sizeof head);
    while ((r = channel_receive(pair.channel, &message)) == -EAGAIN) {
        ssize_t n = send(pair.peer, body + put_bytes, bytes - put_bytes, MSG_DONTWAIT);
        assert_true(n > 0);
        put_bytes += (size_t)n;
    }
    assert_int_equal(r, -EBADMSG);
    free(body);
    pair_close(&pair);
}

static void an_end_in_mid_message_is_an_error(void **state)
{
    struct pair pair = pair_open();
    envelope *message;
    put(pair.peer, "\x10\0\0\0\x08", 5);
    close(pair.peer);
    pair.peer = -1;
    assert_int_equal(channel_receive(pair.channel, &message), -ECONNRESET);
    expect_text(channel_failure(pair.channel), "closed the connection in the middle of a message");
    pair_close(&pair);
}

static void random_bytes_never_harm(void **state)
{
    unsigned seed = 20240611;
    print_message("# seed %u\n", seed);
    for (int round = 0; round < 2000; round++) {
        struct pair pair = pair_open();
        uint8_t bytes[64] = {0};
        size_t count = 1 + (size_t)rand_r(&seed) % 60;
        envelope *message;
        int r;
        for (size_t i = 0; i < count; i++)
            bytes[4 + i] = (uint8_t)rand_r(&seed);
        bytes[0] = (uint8_t)count;
        put(pair.peer, bytes, 4 + count);
        close(pair.peer);
        pair.peer = -1;
        while ((r = channel_receive(pair.channel, &message)) == 0)
            message_free(message);
        assert_true(r == -EBADMSG || r == -ECONNRESET);
        pair_close(&pair);
    }
}

/* --- identity and silence of a peer ------------------------------------------------------ */

static void a_unix_peer_is_known_by_process_and_user(void **state)
{
    struct pair pair = pair_open();
    char expected[64];
    int pid;
    uint32_t uid;
    assert_int_equal(channel_credentials(pair.channel, &pid, &uid), 0);
    assert_int_equal(pid, getpid());
    assert_int_equal(uid, getuid());
    snprintf(expected, sizeof expected, "unix pid %d uid %u", (int)getpid(), (unsigned)getuid());
    assert_string_equal(channel_peer(pair.channel), expected);
    pair_close(&pair);
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    return has;
}

static void a_tcp_peer_is_known_by_address(void **state)
{
    static const struct {
        int family;
        const char *format;
    } cases[] = {{AF_INET, "127.0.0.1:%u"}, {AF_INET6, "[::1]:%u"}};
    for (size_t i = 0; i < 2; i++) {
        char expected[64];
        unsigned port;
        int pid;
        uint32_t uid;
        if (cases[i].family == AF_INET6 && !has_ipv6())
            continue;
        struct pair pair = tcp_open(cases[i].family, &port);
        snprintf(expected, sizeof expected, cases[i].format, port);
        assert_string_equal(channel_peer(pair.channel), expected);
        assert_int_equal(channel_credentials(pair.channel, &pid, &uid), -ENOTSUP);
        pair_close(&pair);
    }
}

static void a_tcp_channel_does_not_wait_and_notices_silent_death(void **state)
{
    unsigned port;
    struct pair pair = tcp_open(AF_INET, &port);
    static const struct {
        int level, option, least, most;
    } cases[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 1, 9},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, 8000, 8000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int value = 0;
        socklen_t bytes = sizeof value;
        assert_int_equal(
            getsockopt(channel_fd(pair.channel), cases[i].level, cases[i].option, &value, &bytes),
            0);
        assert_in_range(value, cases[i].least, cases[i].most);
    }
    pair_close(&pair);
}

/* --- silence --------------------------------------------------------------------------------- */

static void sleep_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Returns the longest silence of the peer within some seconds. This end sends nothing. */
static uint64_t longest_silence_ns(const struct channel *ch)
{
    uint64_t longest_ns = 0;
    for (int i = 0; i < 35; i++) {
        sleep_ms(100);
        uint64_t silent_ns = channel_silent_ns(ch);
        longest_ns = silent_ns > longest_ns ? silent_ns : longest_ns;
    }
    return longest_ns;
}

static void the_kernel_of_a_silent_peer_answers_every_second(void **state)
{
    unsigned port;
    struct pair pair = tcp_open(AF_INET, &port);
    channel_watch_host(pair.channel, 1);
    uint64_t longest_ns = longest_silence_ns(pair.channel);
    /* the peer's kernel has answered the probe */
    assert_in_range(longest_ns, 500 * NS_PER_MS, 3 * NS_PER_S);
    pair_close(&pair);
}

/* The kernel sends probes at growing intervals. The time between two probes does not count as
 * silence. */
static void a_peer_that_reads_nothing_is_not_silent_and_its_connection_does_not_end(void **state)
{
    unsigned port;
    struct pair pair = tcp_open(AF_INET, &port);
    struct failure f;
    envelope *message;
    char text[4096] = "";
    memset(text, 'x', sizeof text - 1);
    channel_watch_host(pair.channel, 1);
    while (!(channel_events(pair.channel) & EPOLLOUT))
        assert_int_equal(channel_send(pair.channel, failure_init(&f, 1, -1, text)), 0);
    sleep_ms(1000); /* waits until bytes in transit have arrived */
    assert_true(longest_silence_ns(pair.channel) < 1500 * NS_PER_MS);
    assert_int_equal(channel_receive(pair.channel, &message), -EAGAIN);
    pair_close(&pair);
}

static void an_unread_end_of_a_connection_is_no_silence(void **state)
{
    unsigned port;
    struct pair pair = tcp_open(AF_INET, &port);
    channel_watch_host(pair.channel, 1);
    close(pair.peer);
    pair.peer = -1;
    sleep_ms(100);
    assert_int_equal(channel_silent_ns(pair.channel), 0);
    pair_close(&pair);
    pair = pair_open();
    /* on a Unix socket the kernel sends no probes */
    assert_int_equal(channel_silent_ns(pair.channel), 0);
    pair_close(&pair);
}

static void a_reset_by_tcp_is_a_peer_that_is_gone(void **state)
{
    unsigned port;
    struct pair pair = tcp_open(AF_INET, &port);
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    struct pollfd wait = {.fd = channel_fd(pair.channel), .events = POLLIN};
    envelope *message;
    setsockopt(pair.peer, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(pair.peer);
    pair.peer = -1;
    assert_int_equal(poll(&wait, 1, 60000), 1);
    assert_int_equal(channel_receive(pair.channel, &message), -ECONNRESET);
    expect_text(channel_failure(pair.channel), "Connection reset by peer");
    pair_close(&pair);
}

static void expect_end(struct pair *pair, enum channel_end end)
{
    struct pollfd wait = {.fd = channel_fd(pair->channel), .events = POLLIN};
    envelope *message;
    assert_int_equal(channel_how_ended(pair->channel), CHANNEL_ENDED_OTHERWISE);
    close(pair->peer);
    pair->peer = -1;
    assert_int_equal(poll(&wait, 1, 60000), 1);
    assert_int_equal(channel_receive(pair->channel, &message), -ECONNRESET);
    assert_int_equal(channel_how_ended(pair->channel), end);
    pair_close(pair);
}

static void a_peer_that_has_not_read_all_resets_its_connection(void **state)
{
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        unsigned port;
        struct failure f;
        struct pair pair = is_tcp ? tcp_open(AF_INET, &port) : pair_open();
        expect_end(&pair, CHANNEL_CLOSED);
        pair = is_tcp ? tcp_open(AF_INET, &port) : pair_open();
        assert_int_equal(channel_send(pair.channel, failure_init(&f, 1, -1, "unread")), 0);
        struct pollfd wait = {.fd = pair.peer, .events = POLLIN};
        assert_int_equal(poll(&wait, 1, 60000), 1);
        expect_end(&pair, CHANNEL_RESET);
    }
}

/* The channel sends before it reads the end. The peer's kernel then resets the connection. */
static void a_closed_connection_stays_closed_though_bytes_are_sent_to_it(void **state)
{
    unsigned port;
    struct failure f;
    struct pair pair = tcp_open(AF_INET, &port);
    struct pollfd wait = {.fd = channel_fd(pair.channel), .events = 0};
    close(pair.peer);
    pair.peer = -1;
    assert_int_equal(channel_send(pair.channel, failure_init(&f, 1, -1, "late")), 0);
    assert_int_equal(poll(&wait, 1, 60000), 1);
    assert_int_equal(channel_send(pair.channel, &f.envelope), -ECONNRESET);
    assert_int_equal(channel_how_ended(pair.channel), CHANNEL_CLOSED);
    pair_close(&pair);
}

static void a_socket_of_another_type_stays_with_the_caller(void **state)
{
    struct channel *ch;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(channel_create(fds[0], &ch), -ENOTSOCK);
    assert_int_equal(channel_create(-1, &ch), -EBADF);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
    channel_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_message_arrives_as_it_was_sent),
        cmocka_unit_test(the_frame_is_a_little_endian_length_and_an_envelope),
        cmocka_unit_test(a_message_that_dribbles_in_byte_by_byte_is_whole),
        cmocka_unit_test(messages_that_come_together_are_taken_one_by_one),
        cmocka_unit_test(a_message_of_nearly_the_maximum_length_arrives_in_parts),
        cmocka_unit_test(a_message_above_the_maximum_length_is_not_sent),
        cmocka_unit_test(an_empty_envelope_is_not_sent),
        cmocka_unit_test(a_peer_that_does_not_read_is_given_up_at_the_backlog),
        cmocka_unit_test(a_peer_that_is_gone_is_an_error_and_no_signal),
        cmocka_unit_test(an_impossible_length_is_reported_as_another_protocol),
        cmocka_unit_test(bytes_that_are_no_message_are_refused),
        cmocka_unit_test(a_message_that_unpacks_into_much_more_memory_is_refused),
        cmocka_unit_test(an_end_in_mid_message_is_an_error),
        cmocka_unit_test(random_bytes_never_harm),
        cmocka_unit_test(a_unix_peer_is_known_by_process_and_user),
        cmocka_unit_test(a_tcp_peer_is_known_by_address),
        cmocka_unit_test(a_tcp_channel_does_not_wait_and_notices_silent_death),
        cmocka_unit_test(the_kernel_of_a_silent_peer_answers_every_second),
        cmocka_unit_test(a_peer_that_reads_nothing_is_not_silent_and_its_connection_does_not_end),
        cmocka_unit_test(an_unread_end_of_a_connection_is_no_silence),
        cmocka_unit_test(a_reset_by_tcp_is_a_peer_that_is_gone),
        cmocka_unit_test(a_peer_that_has_not_read_all_resets_its_connection),
        cmocka_unit_test(a_closed_connection_stays_closed_though_bytes_are_sent_to_it),
        cmocka_unit_test(a_socket_of_another_type_stays_with_the_caller),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
