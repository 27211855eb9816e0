/* Tests how an aggregator answers unknown messages of a coordinator. */
#include "svc/aggregator/internal.h"
#include "test/unit/channel/channel_pair.h"

static void expect_silence(struct channel *coordinator)
{
    envelope *message;
    assert_int_equal(channel_receive(coordinator, &message), -EAGAIN);
}

static void an_unknown_request_is_refused_and_nothing_else_is(void **state)
{
    struct aggregator a = {0};
    struct pair pair = pair_open();
    struct channel *coordinator;
    struct failure f;
    envelope unknown = GRADPOOL__WIRE__ENVELOPE__INIT;
    a.channel = pair.channel;
    assert_int_equal(channel_create(dup(pair.peer), &coordinator), 0);
    assert_int_equal(serve_request(&a, failure_init(&f, 0, -EOPNOTSUPP, "not answered")), 0);
    assert_int_equal(serve_request(&a, failure_init(&f, 9, -EOPNOTSUPP, "not answered")), 0);
    /* a message that answers no request has the number 0 */
    assert_int_equal(serve_request(&a, &unknown), 0);
    expect_silence(coordinator);
    unknown.id = 5;
    assert_int_equal(serve_request(&a, &unknown), 0);
    envelope *reply;
    assert_int_equal(channel_receive(coordinator, &reply), 0);
    assert_int_equal(reply->id, 5);
    assert_int_equal(reply->failure->code, -EOPNOTSUPP);
    message_free(reply);
    expect_silence(coordinator);
    channel_destroy(coordinator);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(an_unknown_request_is_refused_and_nothing_else_is),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
