/* Tests control connections with keys. Only a proven key encrypts a connection. Bytes may arrive in
 * portions of any length. After every refusal both ends must know the reason. */
#include "svc/channel/tls.h"
#include "test/unit/channel/channel_pair.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#define TEXT "gradients are not sent here"

static struct key good, stranger;

/* true: simulates that a message of TLS itself, with new traffic keys, has arrived only in part. */
static bool wants_to_read;

ssize_t __real_tls_write(struct tls *tls, const uint8_t *bytes, size_t count);
ssize_t __wrap_tls_write(struct tls *tls, const uint8_t *bytes, size_t count);
ssize_t __wrap_tls_write(struct tls *tls, const uint8_t *bytes, size_t count)
{
    return wants_to_read ? -EAGAIN : __real_tls_write(tls, bytes, count);
}

static int find(void *context, const char *tenant, struct key *ret_key)
{
    int *asked = context;
    if (asked)
        ++*asked;
    if (strcmp(tenant, "revoked") == 0)
        return -EKEYREVOKED;
    if (strcmp(tenant, good.tenant) != 0)
        return -ENOENT;
    *ret_key = good;
    return 0;
}

/* Two channels. The test moves bytes between them in portions of any length. */
struct wire {
    struct channel *client, *server;
    int client_end, server_end;
};

static struct wire wire_open(const struct key *key)
{
    struct wire w;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(channel_create(fds[0], &w.client), 0);
    w.client_end = fds[1];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(channel_create(fds[0], &w.server), 0);
    w.server_end = fds[1];
    channel_accept_keys(w.server, find, NULL);
    assert_int_equal(channel_use_key(w.client, key), 0);
    return w;
}

static void wire_close(struct wire *w)
{
    channel_destroy(w->client);
    channel_destroy(w->server);
    close(w->client_end);
    close(w->server_end);
}

/* Moves at most `most` bytes. Returns their number. */
static size_t relay(int from, int to, size_t most)
{
    uint8_t bytes[65536];
    ssize_t got = recv(from, bytes, most < sizeof bytes ? most : sizeof bytes, MSG_DONTWAIT);
    if (got <= 0)
        return 0;
    put(to, bytes, (size_t)got);
    return (size_t)got;
}

/* Runs both ends until the next message. Returns 0, or the negative error of the end that
 * failed. */
static int exchange(struct wire *w, struct channel *to, size_t most, envelope **ret_message)
{
    for (int idle = 0; idle < 3; idle++) {
        envelope *other;
        if (relay(w->client_end, w->server_end, most) + relay(w->server_end, w->client_end, most))
            idle = 0;
        int r = channel_receive(to, ret_message);
        if (r != -EAGAIN)
            return r;
        struct channel *from = to == w->client ? w->server : w->client;
        r = channel_receive(from, &other);
        if (r == 0)
            message_free(other);
        else if (r != -EAGAIN)
            return r;
        if (channel_flush(to) < 0 || channel_flush(from) < 0)
            return -EPIPE;
    }
    return -EAGAIN;
}

/* --- a proven key ---------------------------------------------------------------------------- */

static void talk(struct wire *w, size_t most)
{
    struct failure f;
    envelope *message;
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(channel_send(w->client, failure_init(&f, i, -1, TEXT)), 0);
        assert_int_equal(exchange(w, w->server, most, &message), 0);
        expect_failure(message, i, -1, TEXT);
        assert_string_equal(channel_tenant(w->server), "acme");
        assert_int_equal(channel_send(w->server, failure_init(&f, i, -2, TEXT)), 0);
        assert_int_equal(exchange(w, w->client, most, &message), 0);
        expect_failure(message, i, -2, TEXT);
        assert_string_equal(channel_tenant(w->client), "acme");
    }
}

static void a_proven_key_lets_both_talk_and_names_the_tenant(void **state)
{
    struct wire w = wire_open(&good);
    assert_null(channel_tenant(w.server));
    assert_null(channel_tenant(w.client));
    talk(&w, SIZE_MAX);
    wire_close(&w);
}

static void a_handshake_that_dribbles_in_byte_by_byte_is_whole(void **state)
{
    struct wire w = wire_open(&good);
    talk(&w, 1);
    wire_close(&w);
}

static void bytes_before_the_handshake_wait_without_an_event(void **state)
{
    struct wire w = wire_open(&good);
    struct failure f;
    envelope *message;
    for (uint64_t i = 1; i <= 50; i++) {
        assert_int_equal(channel_send(w.client, failure_init(&f, i, -1, TEXT)), 0);
        assert_int_equal(channel_events(w.client), EPOLLIN);
    }
    for (uint64_t i = 1; i <= 50; i++) {
        assert_int_equal(exchange(&w, w.server, SIZE_MAX, &message), 0);
        expect_failure(message, i, -1, TEXT);
    }
    wire_close(&w);
}

static void no_message_can_be_read_on_the_way(void **state)
{
    struct wire w = wire_open(&good);
    struct failure f;
    uint8_t bytes[4096];
    talk(&w, SIZE_MAX);
    assert_int_equal(channel_send(w.client, failure_init(&f, 9, -9, TEXT)), 0);
    ssize_t got = recv(w.client_end, bytes, sizeof bytes, MSG_DONTWAIT);
    assert_true(got > (ssize_t)strlen(TEXT));
    assert_null(memmem(bytes, (size_t)got, TEXT, 8));
    wire_close(&w);
}

static void an_encrypted_message_of_nearly_the_maximum_length_arrives(void **state)
{
    size_t length = CHANNEL_FRAME_BYTES_MAX - 100;
    char *text = malloc(length + 1);
    struct failure f;
    envelope *message;
    assert_non_null(text);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)('a' + i % 23);
    text[length] = '\0';
    struct wire w = wire_open(&good);
    talk(&w, SIZE_MAX);
    assert_int_equal(channel_send(w.client, failure_init(&f, 9, -9, text)), 0);
    assert_int_equal(channel_events(w.client), EPOLLIN | EPOLLOUT);
    assert_int_equal(exchange(&w, w.server, SIZE_MAX, &message), 0);
    expect_failure(message, 9, -9, text);
    assert_int_equal(channel_events(w.client), EPOLLIN);
    wire_close(&w);
    free(text);
}

static void a_sealed_peer_that_does_not_read_is_given_up_at_the_backlog(void **state)
{
    struct wire w = wire_open(&good);
    size_t length = 1u << 20, sent = 0;
    char *text = malloc(length + 1);
    struct failure f;
    int r;
    assert_non_null(text);
    memset(text, 'x', length);
    text[length] = '\0';
    talk(&w, SIZE_MAX);
    while ((r = channel_send(w.client, failure_init(&f, 1, -1, text))) == 0)
        sent++;
    assert_int_equal(r, -ENOBUFS);
    assert_in_range(sent * length, CHANNEL_BACKLOG_BYTES_MAX - 2 * length,
                    CHANNEL_BACKLOG_BYTES_MAX + 2 * length);
    wire_close(&w);
    free(text);
}

/* TLS can refuse a write until it has read more bytes. The channel must queue these bytes and
 * continue reading; otherwise both ends would wait forever. */
static void bytes_that_wait_for_a_tls_read_leave_after_the_read(void **state)
{
    struct wire w = wire_open(&good);
    struct failure f;
    envelope *message;
    talk(&w, SIZE_MAX);
    wants_to_read = true;
    assert_int_equal(channel_send(w.server, failure_init(&f, 1, -1, TEXT)), 0);
    assert_int_equal(channel_receive(w.server, &message), -EAGAIN);
    assert_int_equal(channel_events(w.server), EPOLLIN);
    wants_to_read = false;
    assert_int_equal(channel_send(w.client, failure_init(&f, 2, -2, TEXT)), 0);
    relay(w.client_end, w.server_end, SIZE_MAX);
    assert_int_equal(channel_receive(w.server, &message), 0);
    expect_failure(message, 2, -2, TEXT);
    relay(w.server_end, w.client_end, SIZE_MAX);
    assert_int_equal(channel_receive(w.client, &message), 0);
    expect_failure(message, 1, -1, TEXT);
    talk(&w, SIZE_MAX);
    wire_close(&w);
}

static void a_child_that_closes_and_exits_sends_nothing_to_the_peer(void **state)
{
    struct wire w = wire_open(&good);
    int status;
    talk(&w, SIZE_MAX);
    pid_t child = fork();
    if (child == 0) {
        close(channel_fd(w.client));
        exit(0); /* runs exit functions registered by libraries */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    talk(&w, SIZE_MAX);
    wire_close(&w);
}

/* --- no proof -------------------------------------------------------------------------------- */

/* Runs both ends until each has reported the end of the connection. */
static void expect_refused(const struct key *key, const char *server_says)
{
    struct wire w = wire_open(key);
    struct failure f;
    envelope *message = NULL;
    assert_int_equal(channel_send(w.client, failure_init(&f, 1, -1, TEXT)), 0);
    relay(w.client_end, w.server_end, SIZE_MAX);
    assert_int_equal(channel_receive(w.server, &message), -EKEYREJECTED);
    expect_text(channel_failure(w.server), server_says);
    assert_null(channel_tenant(w.server));
    relay(w.server_end, w.client_end, SIZE_MAX);
    assert_int_equal(channel_receive(w.client, &message), -EKEYREJECTED);
    expect_text(channel_failure(w.client), "the key of tenant ");
    expect_text(channel_failure(w.client), "was refused");
    assert_null(message);
    wire_close(&w);
}

static void a_key_that_does_not_fit_is_refused_at_both_ends(void **state)
{
    struct key wrong = stranger;
    snprintf(wrong.tenant, sizeof wrong.tenant, "acme");
    expect_refused(&wrong, "connection refused: the key is not that of tenant acme");
}

static void an_unknown_tenant_is_refused(void **state)
{
    expect_refused(&stranger, "connection refused: there is no tenant stranger");
}

static void a_revoked_tenant_is_refused(void **state)
{
    struct key revoked = good;
    snprintf(revoked.tenant, sizeof revoked.tenant, "revoked");
    expect_refused(&revoked, "connection refused: tenant revoked was revoked");
}

/* Returns the bytes with which a server refuses this key. */
static size_t answer_to(const struct key *key, uint8_t *bytes, size_t bytes_max)
{
    struct wire w = wire_open(key);
    envelope *message;
    relay(w.client_end, w.server_end, SIZE_MAX);
    assert_int_equal(channel_receive(w.server, &message), -EKEYREJECTED);
    ssize_t got = recv(w.server_end, bytes, bytes_max, MSG_DONTWAIT);
    wire_close(&w);
    return got > 0 ? (size_t)got : 0;
}

static void a_wrong_key_and_a_wrong_name_get_the_same_answer(void **state)
{
    struct key wrong = stranger;
    uint8_t one[256], two[256];
    snprintf(wrong.tenant, sizeof wrong.tenant, "acme");
    size_t bytes = answer_to(&wrong, one, sizeof one);
    assert_true(bytes > 0);
    assert_int_equal(answer_to(&stranger, two, sizeof two), bytes);
    assert_memory_equal(one, two, bytes);
}

static void a_connection_cut_at_any_byte_of_the_handshake_is_reported_as_lost(void **state)
{
    uint8_t hello[2048];
    struct wire w = wire_open(&good);
    ssize_t bytes = recv(w.client_end, hello, sizeof hello, MSG_DONTWAIT);
    assert_true(bytes > 100);
    wire_close(&w);
    for (ssize_t cut = 0; cut < bytes; cut++) {
        struct pair pair = pair_open();
        envelope *message;
        channel_accept_keys(pair.channel, find, NULL);
        if (cut > 0)
            put(pair.peer, hello, (size_t)cut);
        assert_int_equal(channel_receive(pair.channel, &message), -EAGAIN);
        shutdown(pair.peer, SHUT_WR);
        assert_int_equal(channel_receive(pair.channel, &message), -ECONNRESET);
        expect_text(channel_failure(pair.channel), cut < 3 ? "closed" : "in the TLS handshake");
        pair_close(&pair);
    }
}

/* If one byte of the stream is changed, the receiver must accept neither a message nor a tenant. */
static void a_byte_changed_on_the_way_ends_the_connection(void **state)
{
    uint8_t hello[2048];
    for (size_t at = 0; at < 300; at += 7) {
        struct wire w = wire_open(&good);
        struct failure f;
        envelope *message = NULL;
        ssize_t bytes = recv(w.client_end, hello, sizeof hello, MSG_DONTWAIT);
        assert_true(bytes > 0);
        hello[at % (size_t)bytes] ^= 0x21;
        put(w.server_end, hello, (size_t)bytes);
        assert_int_equal(channel_send(w.client, failure_init(&f, 1, -1, TEXT)), 0);
        int r = exchange(&w, w.server, SIZE_MAX, &message);
        assert_true(r < 0);
        assert_null(channel_tenant(w.server));
        wire_close(&w);
    }
}

static void a_sealed_byte_changed_on_the_way_ends_the_connection(void **state)
{
    for (size_t at = 0; at < 40; at++) {
        struct wire w = wire_open(&good);
        struct failure f;
        uint8_t bytes[4096];
        envelope *message;
        talk(&w, SIZE_MAX);
        assert_int_equal(channel_send(w.client, failure_init(&f, 1, -1, TEXT)), 0);
        ssize_t got = recv(w.client_end, bytes, sizeof bytes, MSG_DONTWAIT);
        assert_true(got > 40);
        bytes[at] ^= 1;
        put(w.server_end, bytes, (size_t)got);
        int r = channel_receive(w.server, &message);
        /* if a length has changed, the server may also wait for bytes that never arrive */
        assert_true(r == -EBADMSG || ((at == 3 || at == 4) && r == -EAGAIN));
        wire_close(&w);
    }
}

static void a_silent_peer_is_given_up_at_the_deadline(void **state)
{
    struct pair pair = pair_open();
    struct err err = {0};
    uint64_t incarnation, began_ns = clock_now_ns();
    assert_int_equal(channel_use_key(pair.channel, &good), 0);
    assert_int_equal(channel_greet(pair.channel, GRADPOOL__WIRE__ROLE__ROLE_CLIENT, "test",
                                   began_ns + 50 * NS_PER_MS, &incarnation, &err),
                     -ETIMEDOUT);
    assert_true(clock_now_ns() - began_ns >= 50 * NS_PER_MS);
    pair_close(&pair);
}

/* --- plain and sealed ends ------------------------------------------------------------------ */

static void an_accepting_end_takes_plain_messages_without_a_tenant(void **state)
{
    struct pair pair = pair_open();
    struct failure f;
    int asked = 0;
    channel_accept_keys(pair.channel, find, &asked);
    put_message(pair.peer, failure_init(&f, 1, -1, TEXT));
    expect_failure(receive_wait(pair.channel), 1, -1, TEXT);
    assert_null(channel_tenant(pair.channel));
    assert_int_equal(asked, 0);
    pair_close(&pair);
}

static void no_plain_greeting_can_look_like_tls(void **state)
{
    for (unsigned length = 0x10316; length <= 0x40316; length += 0x10000) {
        struct pair pair = pair_open();
        envelope *message;
        uint8_t header[5] = {(uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16)};
        put(pair.peer, header, sizeof header);
        assert_true(length > CHANNEL_GREETING_BYTES_MAX);
        assert_int_equal(channel_receive(pair.channel, &message), -EAGAIN);
        pair_close(&pair);
    }
    struct pair pair = pair_open();
    envelope *message;
    channel_accept_keys(pair.channel, find, NULL);
    /* a length of 65,558 bytes differs from the first bytes of TLS */
    put(pair.peer, "\x16\x02\x01\x00", 4);
    assert_int_equal(channel_receive(pair.channel, &message), -EBADMSG);
    expect_text(channel_failure(pair.channel), "expected a frame of 1 to 65535 bytes");
    pair_close(&pair);
}

static void only_the_first_frame_is_bounded_as_a_greeting(void **state)
{
    struct pair pair = pair_open();
    struct failure f;
    size_t length = CHANNEL_GREETING_BYTES_MAX + 1;
    char *text = malloc(length + 1);
    assert_non_null(text);
    memset(text, 'x', length);
    text[length] = '\0';
    channel_accept_keys(pair.channel, find, NULL);
    put_message(pair.peer, failure_init(&f, 1, -1, TEXT));
    expect_failure(receive_wait(pair.channel), 1, -1, TEXT);
    put_message(pair.peer, failure_init(&f, 2, -2, text));
    expect_failure(receive_wait(pair.channel), 2, -2, text);
    free(text);
    pair_close(&pair);
}

static void expect_no_tls(const char *bytes, size_t count, int code, const char *part)
{
    struct pair pair = pair_open();
    envelope *message;
    assert_int_equal(channel_use_key(pair.channel, &good), 0);
    put(pair.peer, bytes, count);
    assert_int_equal(channel_receive(pair.channel, &message), code);
    expect_text(channel_failure(pair.channel), part);
    pair_close(&pair);
}

static void a_server_without_tls_has_an_error_of_its_own(void **state)
{
    expect_no_tls("HTTP/1.1 400 Bad Request\r\n\r\n", 28, -EPROTO,
                  "check that the endpoint is gradpool's");
    expect_no_tls("\x0a\0\0\0\x08\x01\x22\x06nonono", 14, -EPROTO, "the TLS handshake failed");
}

static int make_keys(void **state)
{
    return key_generate("acme", &good) < 0 || key_generate("stranger", &stranger) < 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_proven_key_lets_both_talk_and_names_the_tenant),
        cmocka_unit_test(a_handshake_that_dribbles_in_byte_by_byte_is_whole),
        cmocka_unit_test(bytes_before_the_handshake_wait_without_an_event),
        cmocka_unit_test(no_message_can_be_read_on_the_way),
        cmocka_unit_test(an_encrypted_message_of_nearly_the_maximum_length_arrives),
        cmocka_unit_test(a_sealed_peer_that_does_not_read_is_given_up_at_the_backlog),
        cmocka_unit_test(bytes_that_wait_for_a_tls_read_leave_after_the_read),
        cmocka_unit_test(a_child_that_closes_and_exits_sends_nothing_to_the_peer),
        cmocka_unit_test(a_key_that_does_not_fit_is_refused_at_both_ends),
        cmocka_unit_test(an_unknown_tenant_is_refused),
        cmocka_unit_test(a_revoked_tenant_is_refused),
        cmocka_unit_test(a_wrong_key_and_a_wrong_name_get_the_same_answer),
        cmocka_unit_test(a_connection_cut_at_any_byte_of_the_handshake_is_reported_as_lost),
        cmocka_unit_test(a_byte_changed_on_the_way_ends_the_connection),
        cmocka_unit_test(a_sealed_byte_changed_on_the_way_ends_the_connection),
        cmocka_unit_test(a_silent_peer_is_given_up_at_the_deadline),
        cmocka_unit_test(an_accepting_end_takes_plain_messages_without_a_tenant),
        cmocka_unit_test(no_plain_greeting_can_look_like_tls),
        cmocka_unit_test(only_the_first_frame_is_bounded_as_a_greeting),
        cmocka_unit_test(a_server_without_tls_has_an_error_of_its_own),
    };
    return cmocka_run_group_tests(tests, make_keys, NULL);
}
