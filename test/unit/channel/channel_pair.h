/* Tools for tests of the control connection: a channel with a plain socket as its peer, and
 * messages for this socket. */
#ifndef GRADPOOL_TEST_CHANNEL_PAIR_H
#define GRADPOOL_TEST_CHANNEL_PAIR_H

#include "svc/base/clock.h"
#include "svc/channel/channel.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* A channel and the plain socket of its peer. */
struct pair {
    struct channel *channel;
    int peer;
};

static inline struct pair pair_open(void)
{
    struct pair pair;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(channel_create(fds[0], &pair.channel), 0);
    pair.peer = fds[1];
    return pair;
}

static inline void pair_close(struct pair *pair)
{
    channel_destroy(pair->channel);
    if (pair->peer >= 0)
        close(pair->peer);
}

static inline void put(int fd, const void *bytes, size_t count)
{
    assert_int_equal(send(fd, bytes, count, MSG_NOSIGNAL), count);
}

static inline void message_free(envelope *message)
{
    gradpool__wire__envelope__free_unpacked(message, NULL);
}

/* Returns the bytes of a Failure, a message with a code and any text. */
struct failure {
    envelope envelope;
    Gradpool__Wire__Failure failure;
};

static inline envelope *failure_init(struct failure *f, uint64_t id, int code, const char *text)
{
    f->envelope = (envelope)GRADPOOL__WIRE__ENVELOPE__INIT;
    f->failure = (Gradpool__Wire__Failure)GRADPOOL__WIRE__FAILURE__INIT;
    f->failure.code = code;
    f->failure.text = (char *)text;
    f->envelope.id = id;
    f->envelope.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_FAILURE;
    f->envelope.failure = &f->failure;
    return &f->envelope;
}

/* Returns the bytes of the message on the wire, which begin with its length. The caller frees the
 * bytes. */
static inline uint8_t *frame(const envelope *message, size_t *ret_bytes)
{
    size_t bytes = gradpool__wire__envelope__get_packed_size(message);
    uint8_t *out = malloc(4 + bytes);
    assert_non_null(out);
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(bytes >> (8 * i));
    gradpool__wire__envelope__pack(message, out + 4);
    *ret_bytes = 4 + bytes;
    return out;
}

static inline void put_message(int fd, const envelope *message)
{
    size_t bytes;
    uint8_t *out = frame(message, &bytes);
    put(fd, out, bytes);
    free(out);
}

static inline envelope *receive_wait(struct channel *ch)
{
    envelope *message;
    int r;
    while ((r = channel_receive(ch, &message)) == -EAGAIN) {
        struct pollfd wait = {.fd = channel_fd(ch), .events = POLLIN};
        assert_int_equal(poll(&wait, 1, 60000), 1);
    }
    assert_int_equal(r, 0);
    return message;
}

static inline void expect_failure(envelope *message, uint64_t id, int code, const char *text)
{
    assert_int_equal(message->body_case, GRADPOOL__WIRE__ENVELOPE__BODY_FAILURE);
    assert_int_equal(message->id, id);
    assert_int_equal(message->failure->code, code);
    assert_string_equal(message->failure->text, text);
    message_free(message);
}

static inline void expect_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("expected '%s' in '%s'", part, text);
}

/* Opens a TCP connection over loopback. Returns its channel, the peer's socket, and the port of
 * this socket. */
static inline struct pair tcp_open(int family, unsigned *ret_port)
{
    struct pair pair;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    struct sockaddr *address = family == AF_INET ? (void *)&v4 : (void *)&v6;
    socklen_t bytes = family == AF_INET ? sizeof v4 : sizeof v6;
    int listener = socket(family, SOCK_STREAM, 0);
    pair.peer = socket(family, SOCK_STREAM, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, address, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, address, &bytes), 0);
    assert_int_equal(connect(pair.peer, address, bytes), 0);
    assert_int_equal(getsockname(pair.peer, address, &bytes), 0);
    *ret_port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
    assert_int_equal(channel_create(accept(listener, NULL, NULL), &pair.channel), 0);
    close(listener);
    return pair;
}

#endif
