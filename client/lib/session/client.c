/* Owns gp_client: options, environment, the first connection to the service. The first connection
 * is closed at once, because each job has its own connection (control.h). */
#include "client/lib/session/client.h"

#include "client/lib/session/patience.h"
#include "client/lib/session/process.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/base/variables.h"
#include "svc/channel/channel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TIMEOUT_MS_MAX (24 * 3600 * 1000)
/* measured: a lane reads a longer input from the worker's memory as fast as from a record */
#define EAGER_BYTES 65536

/* Settings that environment variables may set. The first one must be connect_timeout_ns. */
static const struct client_number {
    const char *name;
    uint64_t least, most, otherwise, unit;
    size_t place; /* offset in gp_client */
} numbers[] = {
    {"GRADPOOL_CONNECT_TIMEOUT_MS", 1, TIMEOUT_MS_MAX, 10000, NS_PER_MS,
     offsetof(gp_client, connect_timeout_ns)},
    {"GRADPOOL_TIMEOUT_MS", 1, TIMEOUT_MS_MAX, 60000, NS_PER_MS, offsetof(gp_client, timeout_ns)},
    {"GRADPOOL_STALL_MS", 0, TIMEOUT_MS_MAX, 10000, NS_PER_MS, offsetof(gp_client, stall_ns)},
    {"GRADPOOL_PROGRESS_SECONDS", 0, TIMEOUT_MS_MAX / 1000, 30, NS_PER_S,
     offsetof(gp_client, progress_ns)},
    {"GRADPOOL_EAGER_BYTES", 0, EAGER_BYTES, EAGER_BYTES, 1, offsetof(gp_client, eager_bytes)},
};

const char *const client_transports[] = {
    [TRANSPORT_AUTO] = "auto", [TRANSPORT_SHM] = "shm", [TRANSPORT_TCP] = "tcp"};

const char *gp_version(void) { return GP_VERSION; }

static void start_log(void)
{
    log_init("client");
    variables_check();
}

static int read_transport(const char *given, enum client_transport *ret_transport)
{
    const char *name = given ? given : getenv("GRADPOOL_TRANSPORT");
    if (!name || !*name)
        name = "auto";
    for (int i = TRANSPORT_AUTO; i <= TRANSPORT_TCP; i++) {
        if (strcmp(name, client_transports[i]) == 0) {
            *ret_transport = i;
            return 0;
        }
    }
    return client_error(-EINVAL,
                        "transport '%s' is unknown; set the option transport, or the variable "
                        "GRADPOOL_TRANSPORT, to auto, shm or tcp",
                        name);
}

/* Reads numbers. An option has priority over the variable, and the variable over the default. */
static int read_numbers(uint64_t connect_timeout_ms, gp_client *client)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct client_number *n = &numbers[i];
        bool is_given = i == 0 && connect_timeout_ms > 0;
        uint64_t value = is_given ? connect_timeout_ms : n->otherwise;
        const char *text = is_given ? NULL : getenv(n->name);
        if (text && *text && text_parse_u64(text, n->least, n->most, &value) < 0)
            return client_error(-EINVAL,
                                "%s is '%s', expected a number from %" PRIu64 " to %" PRIu64,
                                n->name, text, n->least, n->most);
        *(uint64_t *)((char *)client + n->place) = value * n->unit;
    }
    return 0;
}

static int read_interface(const char *given, gp_client *client)
{
    const char *name = given ? given : getenv("GRADPOOL_INTERFACE");
    if (!name || !*name)
        return 0;
    client->interface_name = strdup(name);
    return client->interface_name ? 0
                                  : client_error(-ENOMEM, "gp_connect: this process has no memory "
                                                          "for the client; raise its memory limit");
}

static int read_endpoint(const char *given, gp_client *client)
{
    struct err err = {0};
    const char *text = given ? given : getenv("GRADPOOL_ENDPOINT");
    if (!text || !*text)
        return client_error(-EDESTADDRREQ, "gp_connect: no endpoint is given; pass one, or set "
                                           "GRADPOOL_ENDPOINT to gradpool://host:port");
    if (endpoint_parse(text, &client->endpoint, &err) < 0)
        return client_error_from(&err);
    endpoint_format(&client->endpoint, client->endpoint_text, sizeof client->endpoint_text);
    return 0;
}

/* Reads the key for TCP. Over a Unix socket the kernel identifies the user. */
static int read_key(gp_client *client)
{
    struct err err = {0};
    int found = client->endpoint.is_unix ? 0 : key_from_environment(&client->key, &err);
    if (found < 0)
        return client_error_from(&err);
    client->has_key = found > 0;
    return 0;
}

static int read_options(const char *endpoint, const gp_options *options, gp_client *client)
{
    int error = read_endpoint(endpoint, client);
    if (error == 0)
        error = read_key(client);
    if (error == 0)
        error = read_transport(options->transport, &client->transport);
    if (error == 0 && options->connect_timeout_ms < 0)
        error = client_error(-EINVAL, "connect_timeout_ms is %d, expected 0 or more",
                             options->connect_timeout_ms);
    if (error == 0)
        error = read_numbers((uint64_t)options->connect_timeout_ms, client);
    if (error == 0)
        error = read_interface(options->interface_name, client);
    return error;
}

/* Opens a channel. After an error `*ret_channel` may be set; the channel then owns the socket, and
 * the caller closes the channel. */
static int open_channel(const gp_client *client, int fd, Gradpool__Wire__Role role,
                        uint64_t deadline_ns, struct channel **ret_channel, struct err *err)
{
    uint64_t incarnation;
    int error = channel_create(fd, ret_channel);
    if (error < 0)
        return err_set(err, error, "%s: %s", client->endpoint_text, err_text(error));
    if (client->has_key)
        /* the error is ignored here, and channel_greet() reports it */
        (void)channel_use_key(*ret_channel, &client->key);
    return channel_greet(*ret_channel, role, CLIENT_PROGRAM, deadline_ns, &incarnation, err);
}

int client_connect_operator(const gp_client *client, pthread_mutex_t *lock, int *fd,
                            struct channel **ret_channel, struct err *err)
{
    const struct endpoint_slot slot = {lock, fd};
    uint64_t now_ns = clock_now_ns(), deadline_ns = now_ns + client->connect_timeout_ns;
    struct endpoint_names names = {.known = client->addresses};
    int connected;
    endpoint_names_refresh(&client->endpoint, &names, now_ns + client->connect_timeout_ns / 2);
    endpoint_names_rest(&names);
    int error =
        endpoint_connect_to(&client->endpoint, &names.known, deadline_ns, &slot, &connected, err);
    if (error < 0)
        return error;
    return open_channel(client, connected, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, deadline_ns,
                        ret_channel, err);
}

void client_disconnect_operator(int *fd, struct channel *channel)
{
    if (*fd >= 0)
        /* shutdown() is needed, because a child that was forked during this call may have a copy of
         * the socket */
        shutdown(*fd, SHUT_RDWR);
    if (channel)
        channel_destroy(channel);
    else if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int reach(gp_client *client, uint64_t deadline_ns, int *ret_fd)
{
    struct patience patience = {.endpoint = client->endpoint_text,
                                .deadline_ns = deadline_ns,
                                .timeout_ns = client->connect_timeout_ns};
    struct err err;
    int error;
    do {
        err = (struct err){0};
        error = endpoint_resolve(&client->endpoint, deadline_ns, &client->addresses, &err)
                    ?: endpoint_connect_to(&client->endpoint, &client->addresses, deadline_ns, NULL,
                                           ret_fd, &err);
    } while (error < 0 && patience_try_again(&patience, error, &err));
    if (error == 0)
        return 0;
    patience_explain(&patience, &error, &err);
    return client_error_from(&err);
}

/* Connects to the service and closes the connection. A wrong endpoint or version is then an error
 * of gp_connect(), not of the first job. */
static int greet(gp_client *client)
{
    struct err err = {0};
    struct channel *channel = NULL;
    uint64_t deadline_ns = clock_now_ns() + client->connect_timeout_ns;
    int fd;
    int error = reach(client, deadline_ns, &fd);
    if (error < 0)
        return error;
    error =
        open_channel(client, fd, GRADPOOL__WIRE__ROLE__ROLE_CLIENT, deadline_ns, &channel, &err);
    if (!channel)
        return client_error_from(&err);
    /* shutdown() is needed, because a child that was forked during this call has a copy of the
     * socket */
    shutdown(channel_fd(channel), SHUT_RDWR);
    if (error < 0)
        client_error(error, "the coordinator at %s: %s", client->endpoint_text,
                     channel_bare_text(channel, err.text[0] ? err.text : err_text(error)));
    channel_destroy(channel);
    return error;
}

void client_free(gp_client *client)
{
    free(client->interface_name);
    key_forget(&client->key);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

int gp_connect(const char *endpoint, const gp_options *options, gp_client **ret_client)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static const gp_options defaults;
    pthread_once(&once, start_log);
    if (!ret_client)
        return client_error(-EINVAL, "gp_connect: ret_client is NULL; pass a pointer");
    gp_client *client = calloc(1, sizeof *client);
    if (!client)
        return client_error(
            -ENOMEM,
            "gp_connect: this process has no memory for the client; raise its memory limit");
    client->generation = generation_now();
    pthread_mutex_init(&client->lock, NULL);
    list_init(&client->jobs);
    list_init(&client->abandoned);
    int error = read_options(endpoint, options ? options : &defaults, client);
    if (error == 0)
        error = greet(client);
    if (error < 0) {
        client_free(client);
        return error;
    }
    *ret_client = client;
    return 0;
}
