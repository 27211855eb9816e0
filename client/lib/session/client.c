/* Owns gp_client: options, environment, the first hello to the service. Keeps no connection: each
 * job has its own (control.h). */
#include "client/lib/session/client.h"

#include "client/lib/session/patience.h"
#include "client/lib/session/process.h"
#include "svc/base/cleanup.h"
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

#define TIMEOUT_MS 60000
#define CONNECT_TIMEOUT_MS 10000
#define TIMEOUT_MS_MAX (24 * 3600 * 1000)
#define STALL_MS 10000
#define PROGRESS_SECONDS 30
#define EAGER_BYTES 65536 /* measured: beyond it a read by the lane is as fast */

const char *gp_version(void) { return GP_VERSION; }

static void start_log(void)
{
    if (log_init("client") < 0)
        log_warn("GRADPOOL_LOG_LEVEL is not one of error, warn, info, debug, trace");
    variables_check();
}

/* `given` wins over the variable, the variable over the default. */
static int read_number(const char *name, uint64_t given, uint64_t least, uint64_t most,
                       uint64_t otherwise, uint64_t *ret_value)
{
    const char *text = getenv(name);
    *ret_value = given ? given : otherwise;
    if (given || !text || !*text)
        return 0;
    if (text_parse_u64(text, least, most, ret_value) < 0)
        return client_error(-EINVAL, "%s is '%s', expected a number from %" PRIu64 " to %" PRIu64,
                            name, text, least, most);
    return 0;
}

static int read_transport(const char *given, enum client_transport *ret_transport)
{
    static const char *const names[] = {
        [TRANSPORT_AUTO] = "auto", [TRANSPORT_SHM] = "shm", [TRANSPORT_TCP] = "tcp"};
    const char *name = given ? given : getenv("GRADPOOL_TRANSPORT");
    if (!name || !*name)
        name = "auto";
    for (int i = TRANSPORT_AUTO; i <= TRANSPORT_TCP; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_transport = i;
            return 0;
        }
    }
    return client_error(-EINVAL,
                        "transport '%s' is unknown: auto, shm or tcp (option transport, "
                        "variable GRADPOOL_TRANSPORT)",
                        name);
}

static int read_times(const gp_options *options, gp_client *client)
{
    uint64_t connect_ms, timeout_ms;
    if (options->connect_timeout_ms < 0)
        return client_error(-EINVAL, "connect_timeout_ms is %d, expected 0 or more",
                            options->connect_timeout_ms);
    int r = read_number("GRADPOOL_CONNECT_TIMEOUT_MS", (uint64_t)options->connect_timeout_ms, 1,
                        TIMEOUT_MS_MAX, CONNECT_TIMEOUT_MS, &connect_ms);
    if (r == 0)
        r = read_number("GRADPOOL_TIMEOUT_MS", 0, 1, TIMEOUT_MS_MAX, TIMEOUT_MS, &timeout_ms);
    if (r < 0)
        return r;
    client->connect_timeout_ns = connect_ms * NS_PER_MS;
    client->timeout_ns = timeout_ms * NS_PER_MS;
    return 0;
}

static int read_reports(gp_client *client)
{
    uint64_t stall_ms, progress_s;
    int r = read_number("GRADPOOL_STALL_MS", 0, 0, TIMEOUT_MS_MAX, STALL_MS, &stall_ms);
    if (r == 0)
        r = read_number("GRADPOOL_PROGRESS_SECONDS", 0, 0, TIMEOUT_MS_MAX / 1000, PROGRESS_SECONDS,
                        &progress_s);
    if (r < 0)
        return r;
    client->stall_ns = stall_ms * NS_PER_MS;
    client->progress_ns = progress_s * NS_PER_S;
    return 0;
}

static int read_interface(const char *given, gp_client *client)
{
    const char *name = given ? given : getenv("GRADPOOL_INTERFACE");
    if (!name || !*name)
        return 0;
    client->interface_name = strdup(name);
    return client->interface_name ? 0 : client_error(-ENOMEM, "out of memory");
}

static int read_endpoint(const char *given, gp_client *client)
{
    struct err err = {0};
    const char *text = given ? given : getenv("GRADPOOL_ENDPOINT");
    if (!text || !*text)
        return client_error(-EDESTADDRREQ, "no endpoint: pass one, or set GRADPOOL_ENDPOINT to "
                                           "gradpool://host:port");
    if (endpoint_parse(text, &client->endpoint, &err) < 0)
        return client_error_from(&err);
    endpoint_format(&client->endpoint, client->endpoint_text, sizeof client->endpoint_text);
    return 0;
}

/* Over a Unix socket the kernel says who we are; a key is for TCP. */
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
    int r = read_endpoint(endpoint, client);
    if (r == 0)
        r = read_key(client);
    if (r == 0)
        r = read_transport(options->transport, &client->transport);
    if (r == 0)
        r = read_times(options, client);
    if (r == 0)
        r = read_reports(client);
    if (r == 0)
        r = read_number("GRADPOOL_EAGER_BYTES", 0, 0, EAGER_BYTES, EAGER_BYTES,
                        &client->eager_bytes);
    if (r == 0)
        r = read_interface(options->interface_name, client);
    return r;
}

static int reach(gp_client *client, uint64_t deadline_ns, int *ret_fd)
{
    struct patience patience = {.endpoint = client->endpoint_text,
                                .deadline_ns = deadline_ns,
                                .timeout_ns = client->connect_timeout_ns};
    struct err err;
    int r;
    do {
        err = (struct err){0};
        r = endpoint_resolve(&client->endpoint, deadline_ns, &client->addresses, &err);
        if (r == 0)
            r = endpoint_connect_to(&client->endpoint, &client->addresses, deadline_ns, NULL,
                                    ret_fd, &err);
    } while (r < 0 && patience_try_again(&patience, r, &err));
    if (r == 0)
        return 0;
    patience_explain(&patience, &r, &err);
    return client_error_from(&err);
}

/* Says hello and goodbye: a wrong endpoint or version is told here, not at the first job. */
static int greet(gp_client *client)
{
    struct err err = {0};
    struct channel *channel;
    uint64_t incarnation;
    uint64_t deadline_ns = clock_now_ns() + client->connect_timeout_ns;
    int fd;
    int r = reach(client, deadline_ns, &fd);
    if (r < 0)
        return r;
    r = channel_create(fd, &channel);
    if (r < 0)
        return client_error(r, "%s: %s", client->endpoint_text, err_text(r));
    if (client->has_key)
        (void)channel_use_key(channel, &client->key); /* the greeting tells what failed */
    r = channel_greet(channel, GRADPOOL__WIRE__ROLE__ROLE_CLIENT, CLIENT_PROGRAM, deadline_ns,
                      &incarnation, &err);
    shutdown(channel_fd(channel), SHUT_RDWR); /* a child forked meanwhile holds it open */
    if (r < 0)
        client_error(r, "the coordinator at %s: %s", client->endpoint_text,
                     channel_bare_text(channel, err.text[0] ? err.text : err_text(r)));
    channel_destroy(channel);
    return r;
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
        return client_error(-EINVAL, "gp_connect: no place for the result");
    gp_client *client = calloc(1, sizeof *client);
    if (!client)
        return client_error(-ENOMEM, "out of memory");
    client->generation = generation_now();
    pthread_mutex_init(&client->lock, NULL);
    list_init(&client->jobs);
    list_init(&client->abandoned);
    int r = read_options(endpoint, options ? options : &defaults, client);
    if (r == 0)
        r = greet(client);
    if (r < 0) {
        client_free(client);
        return r;
    }
    *ret_client = client;
    return 0;
}
