/* Options of the operators' subcommands, and requests to the coordinator. */
#include "svc/cli/operator.h"

#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/cli/cli.h"
#include "svc/cli/local_door.h"
#include "svc/cli/options/knobs.h"
#include "svc/endpoint/endpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ASK_TIMEOUT_MS 10000

const struct knob operator_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [OPERATOR_JSON] = {"json", NULL, "print JSON instead of a table"},
    {0},
};

int operator_set(void *context, int index, const char *value, struct err *err)
{
    struct operator_options *o = context;
    struct endpoint endpoint;
    if (index == OPERATOR_JSON) {
        o->json = true;
        return 0;
    }
    o->endpoint = value;
    return endpoint_parse(value, &endpoint, err);
}

int operator_set_job(void *context, const char *value, struct err *err)
{
    struct operator_options *o = context;
    if (o->job)
        return err_set(err, -EINVAL, "'%s': one argument too many; give one job", value);
    o->job = value;
    return 0;
}

void operator_parse(const char *name, const char *operands, const char *before, const char *after,
                    int argc, char **argv, struct operator_options *ret_options)
{
    const struct knob_command command = {.name = name,
                                         .operands = operands,
                                         .before = before,
                                         .after = after,
                                         .knobs = operator_knobs,
                                         .set = operator_set,
                                         .operand = operands ? operator_set_job : NULL};
    *ret_options = (struct operator_options){.endpoint = OPERATOR_ENDPOINT_DEFAULT};
    knobs_parse(&command, argc, argv, ret_options);
}

int operator_channel(const struct endpoint *endpoint, int fd, struct channel **ret_channel,
                     struct err *err)
{
    struct key key;
    int has_key = endpoint->is_unix ? 0 : key_from_environment(&key, err);
    if (has_key < 0)
        return has_key;
    int error = channel_create(fd, ret_channel);
    if (error < 0)
        return err_set(err, error, "%s", err_text(error));
    if (has_key)
        /* an error here is reported by channel_greet() */
        (void)channel_use_key(*ret_channel, &key);
    key_forget(&key);
    return 0;
}

static int connect_to(const struct endpoint *endpoint, uint64_t deadline_ns,
                      struct channel **ret_channel, struct err *err)
{
    int fd;
    if (endpoint_connect(endpoint, deadline_ns, &fd, err) < 0)
        return -EHOSTDOWN;
    int error = operator_channel(endpoint, fd, ret_channel, err);
    if (error < 0)
        close(fd);
    return error;
}

void operator_socket(const char *state_dir, char *buffer, size_t buffer_bytes)
{
    char preset[PATH_MAX];
    const char *dir = state_dir ? state_dir : cli_state_dir_default(preset, sizeof preset);
    _cleanup_free_ char *whole = realpath(dir, NULL);
    snprintf(buffer, buffer_bytes, "unix:%s/control.sock", whole ? whole : dir);
}

static uint64_t deadline_in(int timeout_ms)
{
    return clock_deadline_ns(clock_now_ns(), timeout_ms ? timeout_ms : ASK_TIMEOUT_MS);
}

/* Adds the endpoint to the error text, because channel_greet() writes only the peer's address. */
static int name_service(const char *endpoint, const struct channel *channel, int error,
                        struct err *err)
{
    struct err bare = *err;
    if (error != -ECONNRESET)
        return error;
    return err_set(err, error, "the service at %s: %s", endpoint,
                   channel_bare_text(channel, bare.text));
}

/* Replaces the connection by one over the operators' Unix socket, if the Welcome names a socket and
 * this user may open the socket. */
static void change_doors(const struct endpoint *endpoint, const envelope *welcome,
                         struct channel **channel)
{
    struct channel *local;
    if (*welcome->welcome->socket == '\0' ||
        local_door_open(endpoint, welcome->welcome->socket, &local) < 0)
        return;
    channel_destroy(*channel);
    *channel = local;
}

static int open_door(const char *url, const struct endpoint *endpoint, struct channel **ret_channel,
                     struct err *err)
{
    uint64_t deadline_ns = deadline_in(0);
    struct channel *channel = NULL;
    envelope *welcome = NULL;
    int error = connect_to(endpoint, deadline_ns, &channel, err)
                    ?: channel_hello(channel, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, "gradpool",
                                     deadline_ns, &welcome, err);
    if (channel)
        error = name_service(url, channel, error, err);
    if (error == 0) {
        change_doors(endpoint, welcome, &channel);
        gradpool__wire__envelope__free_unpacked(welcome, NULL);
        *ret_channel = take_ptr(channel);
    }
    channel_destroy(channel);
    return error;
}

int operator_open(const char *url, struct channel **ret_channel, struct err *err)
{
    struct endpoint endpoint;
    struct key key;
    int error = endpoint_parse(url, &endpoint, err);
    if (error < 0)
        return error;
    int has_key = endpoint.is_unix ? 0 : key_from_environment(&key, err);
    key_forget(&key);
    if (has_key < 0)
        return has_key;
    if (!endpoint.is_unix && !has_key && local_door_open_default(&endpoint, ret_channel) == 0)
        return 0;
    return open_door(url, &endpoint, ret_channel, err);
}

int operator_call(struct channel *channel, envelope *request, envelope **ret_reply, struct err *err)
{
    return channel_call(channel, request, deadline_in(0), NULL, NULL, ret_reply, err);
}

/* Explains an error if the channel has failed. A Failure reply may have the same code, so the state
 * of the channel is checked first. */
int operator_explain(const char *endpoint, const struct channel *channel, int error,
                     struct err *err)
{
    if (error != -ECONNRESET || *channel_failure(channel) == '\0')
        return error;
    return err_set(
        err, error,
        "the connection to the service at %s ended before the answer: the service was restarted, "
        "or this command was stopped for long; see `gradpool status', and try again",
        endpoint);
}

static int ask(const struct operator_options *options, envelope *request,
               void (*unasked)(void *context, envelope *message), void *context,
               envelope **ret_reply)
{
    struct channel *channel = NULL;
    struct err err = {0};
    int error = operator_open(options->endpoint, &channel, &err)
                    ?: channel_call(channel, request, deadline_in(options->timeout_ms), unasked,
                                    context, ret_reply, &err);
    if (channel)
        error = operator_explain(options->endpoint, channel, error, &err);
    channel_destroy(channel);
    if (error < 0)
        fprintf(stderr, "gradpool: %s\n", err.text);
    return error;
}

int operator_ask(const struct operator_options *options, envelope *request, envelope **ret_reply)
{
    return ask(options, request, NULL, NULL, ret_reply);
}

int operator_show(const struct operator_options *options, envelope *request, int expected,
                  operator_show_fn show, const void *context)
{
    envelope *reply;
    int error = operator_ask(options, request, &reply);
    if (error < 0)
        return error == -EHOSTDOWN ? CLI_NOTHING : CLI_FAILED;
    bool is_fit = (int)reply->body_case == expected;
    int code = !is_fit ? CLI_FAILED : show ? show(&reply, context) : CLI_OK;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return code;
}

/* Prints the progress of a long request, one line a second. */
static void show_progress(void *context, envelope *message)
{
    uint64_t *next_ns = context, now_ns = clock_now_ns();
    const Gradpool__Wire__MoveProgress *p = message->move_progress;
    if (message->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_MOVE_PROGRESS && now_ns >= *next_ns) {
        fprintf(stderr, "gradpool: %u task%s moved, %.1f MiB of state; now job %s\n", p->tasks,
                p->tasks == 1 ? "" : "s", (double)p->bytes / (1 << 20), p->job);
        *next_ns = now_ns + NS_PER_S;
    }
    gradpool__wire__envelope__free_unpacked(message, NULL);
}

static bool gives_back(const envelope *request)
{
    return request->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_DRAIN_LANES_REQUEST &&
           request->drain_lanes_request->undo;
}

static int print_given_back(uint32_t lanes)
{
    if (lanes == 0)
        return puts("no lane there was drained");
    return printf("%u lane%s back in use\n", lanes, lanes == 1 ? " is" : "s are");
}

static const char *why_none(const Gradpool__Wire__MoveReply *moved, const envelope *request)
{
    if (*moved->stays)
        return "nothing has moved";
    return request->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_MOVE_REQUEST
               ? "all tasks named are there already: nothing has moved"
               : "no task is there: nothing has moved";
}

static int print_moved(const Gradpool__Wire__MoveReply *moved, const envelope *request, bool json)
{
    if (json)
        return printf("{\"tasks\": %u, \"state_bytes\": %" PRIu64 ", \"longest_ns\": %" PRIu64
                      ", \"lanes\": %u, \"hold_ns\": %" PRIu64 ", \"undone\": %u}\n",
                      moved->tasks, moved->bytes, moved->longest_ns, moved->lanes, moved->hold_ns,
                      moved->undone);
    if (gives_back(request))
        return print_given_back(moved->lanes);
    if (moved->tasks == 0)
        puts(why_none(moved, request));
    else
        printf("%u task%s moved with %.1f MiB of state; at rest for %.1f ms at most\n",
               moved->tasks, moved->tasks == 1 ? " has" : "s have",
               (double)moved->bytes / (1 << 20), (double)moved->longest_ns / NS_PER_MS);
    if (moved->hold_ns > 0)
        printf("growth leaves the job there for %" PRIu64 " s (serve --order-hold)\n",
               moved->hold_ns / NS_PER_S);
    return fflush(stdout);
}

static void print_rest(const Gradpool__Wire__MoveReply *moved)
{
    if (*moved->stays)
        fprintf(stderr,
                "gradpool: some tasks stay on their lanes: %s; give the order again when the "
                "reason is gone\n",
                moved->stays);
    if (moved->undone)
        fprintf(stderr,
                "gradpool: the drain failed and is undone: %u lane%s used again; drain again when "
                "the reason is gone\n",
                moved->undone, moved->undone == 1 ? " is" : "s are");
}

int operator_order(const struct operator_options *options, envelope *request)
{
    envelope *reply;
    uint64_t next_ns = clock_now_ns() + NS_PER_S;
    int error = ask(options, request, show_progress, &next_ns, &reply);
    if (error < 0)
        return error == -EHOSTDOWN || error == -ENOENT ? CLI_NOTHING : CLI_FAILED;
    int code = CLI_FAILED;
    if (reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_MOVE_REPLY &&
        print_moved(reply->move_reply, request, options->json) >= 0)
        code = *reply->move_reply->stays ? CLI_FAILED : CLI_OK;
    if (reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_MOVE_REPLY)
        print_rest(reply->move_reply);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return code;
}
