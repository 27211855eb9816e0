/* Request and reply over a control connection, for callers that may block. Only this file blocks,
 * and never beyond the deadline. Owns nothing. README: H7. */
#include "svc/channel/channel.h"

#include "svc/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

/* Both ends number their requests from 1, so a reply is not identified by its id alone. The kind of
 * the message shows whether it is a reply (H7). */
bool channel_is_reply(const envelope *message)
{
    switch (message->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_WELCOME:
    case GRADPOOL__WIRE__ENVELOPE__BODY_FAILURE:
    case GRADPOOL__WIRE__ENVELOPE__BODY_DONE:
    case GRADPOOL__WIRE__ENVELOPE__BODY_JOIN_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_DECLARE_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_TICKET_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_LATE_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_AGGREGATOR_WELCOME:
    case GRADPOOL__WIRE__ENVELOPE__BODY_STATS_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_RELEASE_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_STATE_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_STATUS_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_JOBS_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_EXPLAIN_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_REPORT_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_PLAN_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_TENANT_ADD_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_TENANTS_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_SNAPSHOT_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_SNAPSHOT_PARTS:
    case GRADPOOL__WIRE__ENVELOPE__BODY_TIMELINE_TAKEN:
    case GRADPOOL__WIRE__ENVELOPE__BODY_TIMELINE_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_TIMELINE_NEXT:
    case GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_BULK_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_FILE_REPLY:
    case GRADPOOL__WIRE__ENVELOPE__BODY_POOL_WELCOME:
    case GRADPOOL__WIRE__ENVELOPE__BODY_MOVE_REPLY: return message->id != 0;
    default: return false;
    }
}

/* A Failure answers a request and is never answered. Two ends that do not know each other's
 * messages therefore stop after one exchange (H9). */
bool channel_wants_answer(const envelope *message)
{
    return message->id != 0 && !channel_is_reply(message);
}

static void message_free(envelope *message)
{
    gradpool__wire__envelope__free_unpacked(message, NULL);
}

/* Sleeps until the socket is ready or the deadline has passed. */
static int channel_wait(struct channel *ch, uint64_t deadline_ns)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= deadline_ns)
        return -ETIMEDOUT;
    struct pollfd wait = {.fd = channel_fd(ch), .events = POLLIN};
    if (channel_events(ch) & EPOLLOUT)
        wait.events |= POLLOUT;
    if (poll(&wait, 1, clock_poll_ms(deadline_ns, now_ns)) < 0 && errno != EINTR)
        return -errno;
    return channel_flush(ch);
}

static int receive_by(struct channel *ch, uint64_t deadline_ns, envelope **ret_message)
{
    int error;
    while ((error = channel_receive(ch, ret_message)) == -EAGAIN) {
        error = channel_wait(ch, deadline_ns);
        if (error < 0)
            return error;
    }
    return error;
}

/* Returns the reply to the caller, or the error of a Failure, which this function frees. */
static int finish_call(struct channel *ch, envelope *reply, envelope **ret_reply, struct err *err)
{
    if (reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_FAILURE) {
        *ret_reply = reply;
        return 0;
    }
    int code = reply->failure->code;
    if (code >= 0) /* a Failure without a negative code must not count as success */
        code = -EPROTO;
    const char *text = reply->failure->text;
    err_set(err, code, "%s", text[0] != '\0' ? text : err_text(code));
    message_free(reply);
    return code;
}

static int call_error(const struct channel *ch, int code, struct err *err)
{
    if (code == -ETIMEDOUT)
        return err_set(err, code, "%s is connected, but has not answered within the deadline",
                       channel_peer(ch));
    if (channel_failure(ch)[0] != '\0')
        return err_set(err, code, "%s", channel_failure(ch));
    return err_set(err, code, "%s: %s", channel_peer(ch), err_text(code));
}

int channel_call(struct channel *ch, envelope *request, uint64_t deadline_ns,
                 void (*unasked)(void *context, envelope *message), void *context,
                 envelope **ret_reply, struct err *err)
{
    request->id = channel_next_id(ch);
    int error = channel_send(ch, request);
    while (error == 0) {
        envelope *message;
        error = receive_by(ch, deadline_ns, &message);
        if (error < 0)
            break;
        if (channel_is_reply(message) && message->id == request->id)
            return finish_call(ch, message, ret_reply, err);
        if (channel_is_reply(message) || unasked == NULL)
            message_free(message); /* also frees a late reply to a call that has timed out */
        else
            unasked(context, message);
        if (clock_now_ns() >= deadline_ns)
            error = -ETIMEDOUT;
    }
    return call_error(ch, error, err);
}

int channel_ask(struct channel *ch, envelope *request, int timeout_ms, int expected,
                envelope **ret_reply, struct err *err)
{
    int error = channel_call(ch, request, clock_deadline_ns(clock_now_ns(), timeout_ms), NULL, NULL,
                             ret_reply, err);
    if (error < 0 || (int)(*ret_reply)->body_case == expected)
        return error;
    message_free(*ret_reply);
    return err_set(err, -EPROTO,
                   "the service answered with an unexpected message; install one version of "
                   "gradpool on all hosts");
}

static int check_welcome(const struct channel *ch, const envelope *reply, struct err *err)
{
    if (reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_WELCOME)
        return err_set(err, -EPROTO, "%s: expected Welcome, got message kind %d", channel_peer(ch),
                       (int)reply->body_case);
    const Gradpool__Wire__Welcome *welcome = reply->welcome;
    if (welcome->version != CHANNEL_VERSION)
        return err_set(err, -EPROTO,
                       "%s: this program speaks protocol version %d, but %s speaks version %u; "
                       "install the same gradpool at both ends",
                       channel_peer(ch), CHANNEL_VERSION,
                       welcome->program[0] != '\0' ? welcome->program : "it", welcome->version);
    return 0;
}

int channel_hello(struct channel *ch, Gradpool__Wire__Role role, const char *program,
                  uint64_t deadline_ns, envelope **ret_welcome, struct err *err)
{
    envelope *reply;
    int error = channel_call(ch,
                             &MESSAGE(0, HELLO, hello, .version = CHANNEL_VERSION, .role = role,
                                      .program = (char *)program),
                             deadline_ns, NULL, NULL, &reply, err);
    if (error < 0)
        return error;
    error = check_welcome(ch, reply, err);
    if (error < 0)
        message_free(reply);
    else
        *ret_welcome = reply;
    return error;
}

int channel_greet(struct channel *ch, Gradpool__Wire__Role role, const char *program,
                  uint64_t deadline_ns, uint64_t *ret_incarnation, struct err *err)
{
    envelope *welcome;
    int error = channel_hello(ch, role, program, deadline_ns, &welcome, err);
    if (error < 0)
        return error;
    *ret_incarnation = welcome->welcome->incarnation;
    message_free(welcome);
    return 0;
}
