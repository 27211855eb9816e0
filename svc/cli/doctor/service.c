/* Connects to a service in steps (name, connection, key, protocol, lanes), so that the failed step
 * can be reported. */
#include "svc/base/clock.h"
#include "svc/cli/doctor/doctor.h"
#include "svc/cli/operator.h"
#include "svc/endpoint/endpoint.h"
#include "svc/ops/snapshot/snapshot.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define SERVICE_MS 10000

/* Warns if the name is the host's own name, which Debian maps to 127.0.1.1. */
static void look_at_name(struct view_checks *checks, const struct endpoint *endpoint)
{
    char address[INET6_ADDRSTRLEN];
    uint64_t deadline_ns = clock_deadline_ns(clock_now_ns(), SERVICE_MS);
    if (endpoint_name_is_loopback(endpoint->host, deadline_ns, address, sizeof address))
        doctor_say(checks, "name", VIEW_WARN,
                   "let gradpool serve listen on 0.0.0.0 or on an address that other hosts reach, "
                   "or correct /etc/hosts; ignore this line if all workers run on this host",
                   "%s is %s on this host, an address that other hosts cannot reach",
                   endpoint->host, address);
}

/* Connects to the service. The text of an error includes advice. */
static bool reach(struct view_checks *checks, const struct endpoint *endpoint, int *ret_fd)
{
    struct endpoint_addresses addresses;
    struct err err;
    uint64_t deadline_ns = clock_deadline_ns(clock_now_ns(), SERVICE_MS);
    char url[300];
    endpoint_format(endpoint, url, sizeof url);
    if (!endpoint->is_unix && endpoint_resolve(endpoint, deadline_ns, &addresses, &err) < 0) {
        doctor_say(checks, "endpoint", VIEW_FAIL,
                   "check DNS and /etc/hosts of this host, or give the coordinator's address", "%s",
                   err.text);
        return false;
    }
    if (endpoint->is_unix
            ? endpoint_connect(endpoint, deadline_ns, ret_fd, &err) < 0
            : endpoint_connect_to(endpoint, &addresses, deadline_ns, NULL, ret_fd, &err) < 0) {
        doctor_say(checks, "endpoint", VIEW_FAIL,
                   "start gradpool serve there, with an address in --listen that this host "
                   "reaches, and open the port in firewalls",
                   "%s", err.text);
        return false;
    }
    doctor_say(checks, "endpoint", VIEW_OK, NULL, "%s takes connections", url);
    if (!endpoint->is_unix)
        look_at_name(checks, endpoint);
    return true;
}

static void say_greeting(struct view_checks *checks, int error, const struct channel *channel,
                         const struct err *err)
{
    const char *tenant = error == 0 ? channel_tenant(channel) : NULL;
    if (error == 0) {
        doctor_say(checks, "key", VIEW_OK, NULL, "%s%s",
                   tenant ? "accepted, as tenant " : "the service requires no key",
                   tenant ? tenant : "");
        doctor_say(checks, "protocol", VIEW_OK, NULL, "version %d at both ends", CHANNEL_VERSION);
    } else if (error == -EPROTO)
        doctor_say(checks, "protocol", VIEW_FAIL,
                   "install the same gradpool at both ends, and check that the port is gradpool's",
                   "%s", err->text);
    else if (error == -EKEYREJECTED || error == -ENOKEY || error == -EKEYREVOKED || error == -EPERM)
        doctor_say(checks, "key", VIEW_FAIL,
                   "ask an operator for a key (gradpool tenant add), and name the key's file in "
                   "GRADPOOL_KEY_FILE",
                   "%s", err->text);
    else
        doctor_say(checks, "answer", VIEW_FAIL,
                   "see the log of the service, and check firewalls and proxies between this host "
                   "and the service",
                   "%s", err->text);
}

static void judge_lanes(struct view_checks *checks, const struct view_status *status)
{
    size_t lanes = 0, down = 0;
    for (size_t i = 0; i < status->aggregators_count; i++) {
        bool is_up = strcmp(status->aggregators[i].state, "up") == 0;
        lanes += is_up ? status->aggregators[i].lanes_count : 0;
        down += !is_up;
    }
    if (status->own_only && down == 0)
        doctor_say(checks, "lanes", VIEW_OK, NULL,
                   "lanes with tasks of this tenant: %zu; operators see all lanes", lanes);
    else if (lanes == 0)
        doctor_say(checks, "lanes", VIEW_WARN,
                   "start gradpool aggregator --join on nodes with free cores",
                   "the service has no lanes: jobs will wait");
    else if (down > 0)
        doctor_say(checks, "lanes", VIEW_WARN, "see gradpool status",
                   "the service has %zu lane%s; %zu aggregator%s not connected", lanes,
                   lanes == 1 ? "" : "s", down, down == 1 ? " is" : "s are");
    else
        doctor_say(checks, "lanes", VIEW_OK, NULL,
                   "lanes of the service: %zu; all aggregators are connected", lanes);
}

static void look_at_lanes(struct view_checks *checks, const char *endpoint_url)
{
    struct channel *channel = NULL;
    struct snapshot *snapshot;
    struct err err;
    envelope *reply;
    if (operator_open(endpoint_url, &channel, &err) < 0 ||
        operator_call(channel, &MESSAGE(0, STATUS_REQUEST, status_request), &reply, &err) < 0) {
        doctor_say(checks, "lanes", VIEW_WARN, "see gradpool status", "%s", err.text);
    } else if (snapshot_create(reply, NULL, &snapshot) < 0) {
        gradpool__wire__envelope__free_unpacked(reply, NULL);
        doctor_say(checks, "lanes", VIEW_WARN, "see gradpool status",
                   "this program cannot read the service's answer");
    } else {
        judge_lanes(checks, &snapshot->status);
        snapshot_destroy(snapshot);
    }
    channel_destroy(channel);
}

static void greet(struct view_checks *checks, const char *endpoint_url,
                  const struct endpoint *endpoint, int fd)
{
    struct channel *channel;
    struct err err;
    uint64_t incarnation;
    int error = operator_channel(endpoint, fd, &channel, &err);
    if (error < 0) {
        doctor_say(checks, "key", VIEW_FAIL,
                   "give a key in GRADPOOL_KEY, or a file that this user can read in "
                   "GRADPOOL_KEY_FILE",
                   "%s", err.text);
        close(fd);
        return;
    }
    error = channel_greet(channel, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, "gradpool doctor",
                          clock_deadline_ns(clock_now_ns(), SERVICE_MS), &incarnation, &err);
    say_greeting(checks, error, channel, &err);
    channel_destroy(channel);
    if (error == 0)
        look_at_lanes(checks, endpoint_url);
}

void doctor_service(struct view_checks *checks, const char *endpoint_url)
{
    struct endpoint endpoint;
    struct err err;
    int fd;
    if (!endpoint_url)
        doctor_say(checks, "endpoint", VIEW_WARN,
                   "name a service with --endpoint or GRADPOOL_ENDPOINT",
                   "no service was checked, because none was named");
    else if (endpoint_parse(endpoint_url, &endpoint, &err) < 0)
        doctor_say(checks, "endpoint", VIEW_FAIL, "give an endpoint such as gradpool://node7:7077",
                   "%s", err.text);
    else if (reach(checks, &endpoint, &fd))
        greet(checks, endpoint_url, &endpoint, fd);
}
