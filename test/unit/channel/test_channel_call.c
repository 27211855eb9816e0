/* Tests calls over the control connection: the reply with the number of the request, messages that
 * arrive before this reply, the deadline, and the greeting. */
#include "test/unit/channel/channel_pair.h"

#include <pthread.h>
#include <stdio.h>

#define CALL_NS (60 * NS_PER_S)

/* --- calls ----------------------------------------------------------------------------------- */

static envelope status_request(void)
{
    static Gradpool__Wire__StatusRequest body = GRADPOOL__WIRE__STATUS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_STATUS_REQUEST;
    request.status_request = &body;
    return request;
}

static void put_done(int fd, uint64_t id)
{
    Gradpool__Wire__Done body = GRADPOOL__WIRE__DONE__INIT;
    envelope done = GRADPOOL__WIRE__ENVELOPE__INIT;
    done.id = id;
    done.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_DONE;
    done.done = &body;
    put_message(fd, &done);
}

static void a_call_gets_the_reply_with_its_number(void **state)
{
    struct pair pair = pair_open();
    struct err err = {0};
    for (uint64_t i = 1; i <= 3; i++) {
        envelope request = status_request(), *reply;
        /* the replies arrive before the request is sent, in the order of the stream */
        put_done(pair.peer, i);
        assert_int_equal(channel_call(pair.channel, &request, clock_now_ns() + CALL_NS, NULL, NULL,
                                      &reply, &err),
                         0);
        assert_int_equal(reply->id, i);
        assert_int_equal(request.id, i);
        message_free(reply);
    }
    assert_int_equal(channel_next_id(pair.channel), 4);
    pair_close(&pair);
}

struct collected {
    int count;
    int kinds[8]; /* kinds of received messages */
    uint64_t ids[8];
};

static void collect(void *context, envelope *message)
{
    struct collected *c = context;
    assert_true(c->count < 8);
    c->kinds[c->count] = message->body_case;
    c->ids[c->count++] = message->id;
    message_free(message);
}

/* Sends a message that answers no request, and then a request with the same number as the test's
 * own request. */
static void put_unasked(int fd)
{
    Gradpool__Wire__JobFailure job = GRADPOOL__WIRE__JOB_FAILURE__INIT;
    envelope failure = GRADPOOL__WIRE__ENVELOPE__INIT, drain = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__DrainRequest body = GRADPOOL__WIRE__DRAIN_REQUEST__INIT;
    failure.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_JOB_FAILURE;
    failure.job_failure = &job;
    put_message(fd, &failure);
    drain.id = 1;
    drain.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_DRAIN_REQUEST;
    drain.drain_request = &body;
    put_message(fd, &drain);
}

static void an_unrequested_message_during_a_call_is_passed_on(void **state)
{
    for (int listens = 0; listens < 2; listens++) {
        struct pair pair = pair_open();
        struct collected c = {0};
        struct err err = {0};
        envelope request = status_request(), *reply;
        put_unasked(pair.peer);
        put_done(pair.peer, 77); /* answer to an abandoned call */
        put_done(pair.peer, 1);
        assert_int_equal(channel_call(pair.channel, &request, clock_now_ns() + CALL_NS,
                                      listens ? collect : NULL, &c, &reply, &err),
                         0);
        assert_int_equal(reply->body_case, GRADPOOL__WIRE__ENVELOPE__BODY_DONE);
        message_free(reply);
        assert_int_equal(c.count, listens ? 2 : 0);
        if (listens) {
            assert_int_equal(c.kinds[0], GRADPOOL__WIRE__ENVELOPE__BODY_JOB_FAILURE);
            assert_int_equal(c.kinds[1], GRADPOOL__WIRE__ENVELOPE__BODY_DRAIN_REQUEST);
            assert_int_equal(c.ids[1], 1);
        }
        pair_close(&pair);
    }
}

static int call_with_reply(const envelope *reply, struct err *err)
{
    struct pair pair = pair_open();
    envelope request = status_request(), *got;
    put_message(pair.peer, reply);
    int r = channel_call(pair.channel, &request, clock_now_ns() + CALL_NS, NULL, NULL, &got, err);
    pair_close(&pair);
    return r;
}

static void a_failure_becomes_code_and_text(void **state)
{
    struct failure f;
    struct err err = {0};
    failure_init(&f, 1, -EBUSY, "rank 3 of job 'a' is connected already");
    assert_int_equal(call_with_reply(&f.envelope, &err), -EBUSY);
    assert_int_equal(err.code, -EBUSY);
    assert_string_equal(err.text, "rank 3 of job 'a' is connected already");
    failure_init(&f, 1, -EBUSY, "");
    assert_int_equal(call_with_reply(&f.envelope, &err), -EBUSY);
    assert_string_equal(err.text, "Device or resource busy");
    failure_init(&f, 1, 0, "a failure that claims success");
    assert_int_equal(call_with_reply(&f.envelope, &err), -EPROTO);
    failure_init(&f, 1, -EBUSY, "err may be NULL");
    assert_int_equal(call_with_reply(&f.envelope, NULL), -EBUSY);
}

static void a_call_without_an_answer_ends_by_its_deadline(void **state)
{
    struct pair pair = pair_open();
    struct err err = {0};
    envelope request = status_request(), *reply;
    uint64_t before_ns = clock_now_ns();
    put_unasked(pair.peer); /* this message is not an answer */
    assert_int_equal(
        channel_call(pair.channel, &request, before_ns + 50 * NS_PER_MS, NULL, NULL, &reply, &err),
        -ETIMEDOUT);
    assert_true(clock_now_ns() - before_ns >= 50 * NS_PER_MS);
    expect_text(err.text, "is connected, but has not answered within the deadline");
    /* the next call must not accept the late answer to the abandoned request */
    put_done(pair.peer, 1);
    put_done(pair.peer, 2);
    assert_int_equal(
        channel_call(pair.channel, &request, clock_now_ns() + CALL_NS, NULL, NULL, &reply, &err),
        0);
    assert_int_equal(reply->id, 2);
    message_free(reply);
    pair_close(&pair);
}

static void a_call_to_a_peer_that_leaves_or_sends_garbage_ends_with_that_reason(void **state)
{
    struct err err = {0};
    struct pair pair = pair_open();
    envelope request = status_request(), *reply;
    shutdown(pair.peer, SHUT_WR);
    assert_int_equal(
        channel_call(pair.channel, &request, clock_now_ns() + CALL_NS, NULL, NULL, &reply, &err),
        -ECONNRESET);
    expect_text(err.text, "closed the connection");
    pair_close(&pair);
    pair = pair_open();
    put(pair.peer, "HTTP/1.1 400 Bad Request\r\n", 26);
    assert_int_equal(
        channel_call(pair.channel, &request, clock_now_ns() + CALL_NS, NULL, NULL, &reply, &err),
        -EBADMSG);
    expect_text(err.text, "not a gradpool endpoint? first bytes 48 54 54 50");
    pair_close(&pair);
}

static void only_requests_need_an_answer(void **state)
{
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    static const struct {
        int body;
        bool is_request;
    } cases[] = {
        {GRADPOOL__WIRE__ENVELOPE__BODY__NOT_SET,
         true}, /* a message kind that a later version of gradpool sends */
        {GRADPOOL__WIRE__ENVELOPE__BODY_HELLO, true},
        {GRADPOOL__WIRE__ENVELOPE__BODY_STATS_REQUEST, true},
        {GRADPOOL__WIRE__ENVELOPE__BODY_FAILURE, false},
        {GRADPOOL__WIRE__ENVELOPE__BODY_DONE, false},
        {GRADPOOL__WIRE__ENVELOPE__BODY_TENANTS_REPLY, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        message.body_case = cases[i].body;
        message.id = 7;
        assert_int_equal(channel_wants_answer(&message), cases[i].is_request);
        message.id = 0;
        assert_false(channel_wants_answer(&message));
    }
}

/* --- greeting -------------------------------------------------------------------------------- */

static void put_welcome(int fd, uint32_t version, const char *program)
{
    Gradpool__Wire__Welcome body = GRADPOOL__WIRE__WELCOME__INIT;
    envelope welcome = GRADPOOL__WIRE__ENVELOPE__INIT;
    body.version = version;
    body.incarnation = UINT64_C(0x1234567890abcdef);
    body.program = (char *)program;
    welcome.id = 1;
    welcome.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_WELCOME;
    welcome.welcome = &body;
    put_message(fd, &welcome);
}

static int greet(struct pair *pair, uint64_t *ret_incarnation, struct err *err)
{
    return channel_greet(pair->channel, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, "gradpool 0.1.0",
                         clock_now_ns() + CALL_NS, ret_incarnation, err);
}

static void a_greeting_names_the_program_and_receives_the_incarnation(void **state)
{
    struct pair pair = pair_open();
    struct channel *other;
    struct err err = {0};
    uint64_t incarnation = 0;
    put_welcome(pair.peer, CHANNEL_VERSION, "gradpool 0.1.0");
    assert_int_equal(greet(&pair, &incarnation, &err), 0);
    assert_true(incarnation == UINT64_C(0x1234567890abcdef));
    assert_int_equal(channel_create(dup(pair.peer), &other), 0);
    envelope *hello = receive_wait(other);
    assert_int_equal(hello->body_case, GRADPOOL__WIRE__ENVELOPE__BODY_HELLO);
    assert_int_equal(hello->hello->version, CHANNEL_VERSION);
    assert_int_equal(hello->hello->role, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    assert_string_equal(hello->hello->program, "gradpool 0.1.0");
    message_free(hello);
    channel_destroy(other);
    pair_close(&pair);
}

static void the_error_of_another_version_has_both_numbers(void **state)
{
    struct pair pair = pair_open();
    struct err err = {0};
    uint64_t incarnation = 5;
    put_welcome(pair.peer, 42, "gradpool 9.9");
    assert_int_equal(greet(&pair, &incarnation, &err), -EPROTO);
    assert_int_equal(incarnation, 5);
    char want[80];
    snprintf(want, sizeof want, "this program speaks protocol version %u, but gradpool 9.9 speaks",
             CHANNEL_VERSION);
    expect_text(err.text, want);
    pair_close(&pair);
}

static void a_reply_that_is_no_welcome_is_an_error(void **state)
{
    struct pair pair = pair_open();
    struct err err = {0};
    uint64_t incarnation;
    put_done(pair.peer, 1);
    assert_int_equal(greet(&pair, &incarnation, &err), -EPROTO);
    expect_text(err.text, "expected Welcome");
    pair_close(&pair);
}

/* Acts like a server in a separate thread. Answers each request with Done. */
static void *serve(void *argument)
{
    struct channel *ch = argument;
    Gradpool__Wire__Done body = GRADPOOL__WIRE__DONE__INIT;
    for (int i = 0; i < 1000; i++) {
        envelope *request = receive_wait(ch), done = GRADPOOL__WIRE__ENVELOPE__INIT;
        done.id = request->id;
        done.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_DONE;
        done.done = &body;
        message_free(request);
        assert_int_equal(channel_send(ch, &done), 0);
    }
    return NULL;
}

static void a_thousand_calls_are_answered_across_threads(void **state)
{
    unsigned port;
    struct pair pair = tcp_open(AF_INET, &port);
    struct channel *server;
    pthread_t thread;
    assert_int_equal(channel_create(pair.peer, &server), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve, server), 0);
    for (uint64_t i = 1; i <= 1000; i++) {
        envelope request = status_request(), *reply;
        struct err err = {0};
        assert_int_equal(channel_call(pair.channel, &request, clock_now_ns() + CALL_NS, NULL, NULL,
                                      &reply, &err),
                         0);
        assert_int_equal(reply->id, i);
        message_free(reply);
    }
    pthread_join(thread, NULL);
    channel_destroy(server);
    channel_destroy(pair.channel);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_call_gets_the_reply_with_its_number),
        cmocka_unit_test(an_unrequested_message_during_a_call_is_passed_on),
        cmocka_unit_test(a_failure_becomes_code_and_text),
        cmocka_unit_test(a_call_without_an_answer_ends_by_its_deadline),
        cmocka_unit_test(a_call_to_a_peer_that_leaves_or_sends_garbage_ends_with_that_reason),
        cmocka_unit_test(only_requests_need_an_answer),
        cmocka_unit_test(a_greeting_names_the_program_and_receives_the_incarnation),
        cmocka_unit_test(the_error_of_another_version_has_both_numbers),
        cmocka_unit_test(a_reply_that_is_no_welcome_is_an_error),
        cmocka_unit_test(a_thousand_calls_are_answered_across_threads),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
