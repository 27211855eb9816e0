/* What subcommands about a running service share: their options, and asking the coordinator. */
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
    const char *job; /* NULL: all */
    int timeout_ms;  /* 0: as for a question */
};
/* Of orders, which take as long as what moves. */
#define OPERATOR_PATIENCE_MS 610000

/* What every table of options begins with that is about a running service. */
enum { OPERATOR_ENDPOINT, OPERATOR_JSON, OPERATOR_KNOBS };
/* What --endpoint is unless told. */
#define OPERATOR_ENDPOINT_DEFAULT "gradpool://127.0.0.1:7077"
#define OPERATOR_ENDPOINT_KNOB                                                                   \
    {                                                                                            \
        "endpoint", "URL", "the service (default: " OPERATOR_ENDPOINT_DEFAULT ")", KNOB_VARIABLE \
    }
#define OPERATOR_TENANT_KNOB                                                               \
    {                                                                                      \
        "tenant", "NAME", "whose job it is, where two have one of that name (-: nobody's)" \
    }
/* One of these two, as knob_command.set; `options`: a struct operator_options. */
int operator_set(void *options, int index, const char *value, struct err *err);
/* The job, as knob_command.operand; `options`: what begins with a struct operator_options. */
int operator_set_job(void *options, const char *value, struct err *err);

/* `operands`: "[JOB]", or NULL for none. */
void operator_parse(const char *name, const char *operands, const char *before, const char *after,
                    int argc, char **argv, struct operator_options *ret_options);
/* Asks and waits for the reply. Failures are said on standard error; -EHOSTDOWN: nobody there. */
int operator_ask(const struct operator_options *options, envelope *request, envelope **ret_reply);

/* Asks, and gives a reply of the kind `expected` to `show` (NULL: nothing is shown). The reply is
 * freed afterwards, unless `show` leaves NULL behind. Returns the exit code. */
typedef int (*operator_show_fn)(envelope **reply, const void *context);
int operator_show(const struct operator_options *options, envelope *request, int expected,
                  operator_show_fn show, const void *context);

/* Asks for a MoveReply and prints it; returns the exit code. */
int operator_order(const struct operator_options *options, envelope *request);

/* Takes over the connected `fd`, on failure it stays the caller's: speaks TLS if this process has a
 * key and the endpoint is no Unix socket. */
int operator_channel(const struct endpoint *endpoint, int fd, struct channel **ret_channel,
                     struct err *err);
/* The Unix socket of the service with that state dir, as an endpoint; NULL: the default one. */
#define OPERATOR_SOCKET_BYTES (PATH_MAX + 32)
void operator_socket(const char *state_dir, char *buffer, size_t buffer_bytes);
/* One connection, for commands that ask again and again. Without a key it goes to the Unix socket
 * of a service on this host, if this user may use that (local_door.h). The texts in `err` say what
 * failed. */
int operator_open(const char *endpoint, struct channel **ret_channel, struct err *err);
int operator_call(struct channel *channel, envelope *request, envelope **ret_reply,
                  struct err *err);
/* After channel_call(), whose `error` it returns: where the connection has ended, `err` then tells
 * of the service, not of a process, and what to do. */
int operator_explain(const char *endpoint, const struct channel *channel, int error,
                     struct err *err);

extern const struct knob operator_knobs[];

#endif
