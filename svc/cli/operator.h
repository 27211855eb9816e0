/* Common parts of subcommands for a running service: options, and requests to the coordinator. */
#ifndef GRADPOOL_CLI_OPERATOR_H
#define GRADPOOL_CLI_OPERATOR_H

#include "svc/channel/channel.h"
#include "svc/cli/options/knobs.h"
#include "svc/endpoint/endpoint.h"

#include <limits.h>
#include <stdbool.h>

struct operator_options {
    const char *endpoint;
    bool json;
    const char *job; /* NULL: all jobs */
    int timeout_ms;  /* time to wait for the reply; 0: the default */
};
/* Time to wait for an order, which lasts as long as its moves. */
#define OPERATOR_PATIENCE_MS 610000

/* First options of every table of a subcommand for a running service. */
enum { OPERATOR_ENDPOINT, OPERATOR_JSON, OPERATOR_KNOBS };
/* Default of --endpoint. */
#define OPERATOR_ENDPOINT_DEFAULT "gradpool://127.0.0.1:7077"
#define OPERATOR_ENDPOINT_KNOB                                                                   \
    {                                                                                            \
        "endpoint", "URL", "the service (default: " OPERATOR_ENDPOINT_DEFAULT ")", KNOB_VARIABLE \
    }
#define OPERATOR_TENANT_KNOB                                                               \
    {                                                                                      \
        "tenant", "NAME", "whose job it is, where two have one of that name (-: nobody's)" \
    }
/* Sets --endpoint or --json, as knob_command.set; `options`: a struct operator_options. */
int operator_set(void *options, int index, const char *value, struct err *err);
/* Sets the job, as knob_command.operand; `options` begins with a struct operator_options. */
int operator_set_job(void *options, const char *value, struct err *err);

/* `operands`: "[JOB]", or NULL for none. */
void operator_parse(const char *name, const char *operands, const char *before, const char *after,
                    int argc, char **argv, struct operator_options *ret_options);
/* Sends a request and waits for the reply, which the caller frees. Errors are printed on standard
 * error; -EHOSTDOWN: no service. */
int operator_ask(const struct operator_options *options, envelope *request, envelope **ret_reply);

/* Sends a request, and passes a reply of the kind `expected` to `show` (NULL: prints nothing). The
 * reply is freed afterwards, unless `show` sets it to NULL. Returns the exit code. */
typedef int (*operator_show_fn)(envelope **reply, const void *context);
int operator_show(const struct operator_options *options, envelope *request, int expected,
                  operator_show_fn show, const void *context);

/* Sends a request for a MoveReply and prints the reply; returns the exit code. */
int operator_order(const struct operator_options *options, envelope *request);

/* Makes a channel of the connected `fd`, which it takes over; after an error `fd` stays the
 * caller's. Uses TLS if this process has a key and the endpoint is no Unix socket. */
int operator_channel(const struct endpoint *endpoint, int fd, struct channel **ret_channel,
                     struct err *err);
/* Writes the endpoint of the Unix socket in that state directory; NULL: the default one. */
#define OPERATOR_SOCKET_BYTES (PATH_MAX + 32)
void operator_socket(const char *state_dir, char *buffer, size_t buffer_bytes);
/* Opens a connection, for commands with several requests. Without a key it uses the Unix socket of
 * a service on this host, if this user may (local_door.h). Errors have a text in `err`. */
int operator_open(const char *endpoint, struct channel **ret_channel, struct err *err);
int operator_call(struct channel *channel, envelope *request, envelope **ret_reply,
                  struct err *err);
/* Explains an error of channel_call(), and returns it: if the connection has ended, `err` names the
 * service and the next step. */
int operator_explain(const char *endpoint, const struct channel *channel, int error,
                     struct err *err);

extern const struct knob operator_knobs[];

#endif
