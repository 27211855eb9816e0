/* Common parts of the subcommands that connect to a running service: options, and requests to the
 * coordinator. */
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
    int timeout_ms;  /* longest wait for the reply; 0: the default */
};
/* Longest wait for the reply to an order. The reply arrives after all moves. */
#define OPERATOR_PATIENCE_MS 610000

/* Indexes of options. The table of every subcommand that connects to a running service begins with
 * these options. */
enum { OPERATOR_ENDPOINT, OPERATOR_JSON, OPERATOR_KNOBS };
/* Default of --endpoint. */
#define OPERATOR_ENDPOINT_DEFAULT "gradpool://127.0.0.1:7077"
#define OPERATOR_ENDPOINT_KNOB \
    "endpoint", "URL", "the service (default: " OPERATOR_ENDPOINT_DEFAULT ")", KNOB_VARIABLE
#define OPERATOR_TENANT_KNOB \
    "tenant", "NAME", "tenant of the job, if two tenants have a job of this name (-: no tenant)"
/* Sets --endpoint or --json; for knob_command.set. `options`: a struct operator_options. */
int operator_set(void *options, int index, const char *value, struct err *err);
/* Sets the job; for knob_command.operand. `options` begins with a struct operator_options. */
int operator_set_job(void *options, const char *value, struct err *err);

/* Parses the command line of a subcommand. `operands`: "[JOB]", or NULL for a subcommand without
 * operands. `before`, `after`: help texts. */
void operator_parse(const char *name, const char *operands, const char *before, const char *after,
                    int argc, char **argv, struct operator_options *ret_options);
/* Sends a request and waits for the reply, which the caller frees. Errors are printed on standard
 * error. Returns 0 or a negative errno; -EHOSTDOWN: there is no service. */
int operator_ask(const struct operator_options *options, envelope *request, envelope **ret_reply);

/* Sends a request and passes a reply of the kind `expected` to `show` (NULL: nothing is printed).
 * Then frees the reply, unless `show` has set it to NULL. Returns the exit code. */
typedef int (*operator_show_fn)(envelope **reply, const void *context);
int operator_show(const struct operator_options *options, envelope *request, int expected,
                  operator_show_fn show, const void *context);

/* Sends a request whose reply is a MoveReply, and prints the reply. Returns the exit code. */
int operator_order(const struct operator_options *options, envelope *request);

/* Creates a channel that owns the connected `fd`. Returns 0 or a negative errno; after an error the
 * caller still owns `fd`. The channel uses TLS if this process has a key and the endpoint is not a
 * Unix socket. */
int operator_channel(const struct endpoint *endpoint, int fd, struct channel **ret_channel,
                     struct err *err);
/* Writes the endpoint of the Unix socket in this state directory (NULL: the default directory). */
#define OPERATOR_SOCKET_BYTES (PATH_MAX + 32)
void operator_socket(const char *state_dir, char *buffer, size_t buffer_bytes);
/* Opens a connection for commands with several requests. Without a key, the Unix socket of a
 * service on this host is used if this user may open it (local_door.h). Returns 0, or a negative
 * errno with a text in `err`. */
int operator_open(const char *endpoint, struct channel **ret_channel, struct err *err);
int operator_call(struct channel *channel, envelope *request, envelope **ret_reply,
                  struct err *err);
/* Writes the explanation of an error of channel_call() to `err`, and returns the error. If the
 * connection has ended, the text names the service and the next step. */
int operator_explain(const char *endpoint, const struct channel *channel, int error,
                     struct err *err);

extern const struct knob operator_knobs[];

#endif
