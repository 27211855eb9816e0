/* Sends a message from this process to itself over each transport, as a worker and a lane on this
 * host would. No service is needed. */
#include "svc/base/clock.h"
#include "svc/base/err.h"
#include "svc/base/system/shortage.h"
#include "svc/base/system/unique.h"
#include "svc/cli/doctor/doctor.h"
#include "svc/fabric/fabric.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define LOOPBACK_NS (5 * NS_PER_S)
#define EVENTS 4

static const char word[] = "gradpool doctor";

struct loopback {
    struct fabric *lane, *worker;
    bool has_come;
    int error;
};

static void lane_event(struct loopback *l, const struct fabric_event *event)
{
    if (event->kind == FABRIC_EVENT_REQUEST)
        l->error = fabric_accept(event->conn, l);
    if (event->kind == FABRIC_EVENT_MESSAGE) {
        l->has_come = event->bytes == sizeof word && memcmp(event->data, word, sizeof word) == 0;
        l->error = l->has_come ? 0 : -EBADMSG;
        fabric_message_done(event->conn, event->data);
    }
}

static void worker_event(struct loopback *l, const struct fabric_event *event)
{
    if (event->kind == FABRIC_EVENT_OPEN)
        l->error = fabric_send(event->conn, word, sizeof word, NULL, 0);
    if (event->kind == FABRIC_EVENT_CLOSED)
        l->error = event->error < 0 ? event->error : -ECONNRESET;
}

static void turn(struct loopback *l)
{
    struct fabric_event events[EVENTS];
    int count = fabric_poll(l->lane, events, EVENTS);
    for (int i = 0; i < count; i++)
        lane_event(l, &events[i]);
    int more = fabric_poll(l->worker, events, EVENTS);
    for (int i = 0; i < more; i++)
        worker_event(l, &events[i]);
    fabric_flush(l->worker);
    if (count + more == 0)
        poll(NULL, 0, 1);
}

/* Exchanges the message. After an error, `ret_step` names the failed step. */
static int talk(struct loopback *l, const char *address, const char **ret_step)
{
    char bound[FABRIC_ADDRESS_BYTES_MAX];
    struct fabric_conn *conn;
    uint64_t deadline_ns = clock_now_ns() + LOOPBACK_NS;
    *ret_step = "listening";
    int error = fabric_listen(l->lane, address, bound);
    if (error < 0)
        return error;
    *ret_step = "connecting";
    error = fabric_connect(l->worker, bound, word, sizeof word, l, &conn);
    if (error < 0)
        return error;
    while (!l->has_come && l->error == 0 && clock_now_ns() < deadline_ns)
        turn(l);
    return l->error < 0 ? l->error : l->has_come ? 0 : -ETIMEDOUT;
}

static int connect_to_self(const char *kind, const char *address, const char **ret_step)
{
    const struct fabric_options options = {0};
    struct loopback l = {0};
    *ret_step = "opening it";
    int error = fabric_open(kind, &options, &l.lane);
    if (error == 0)
        error = fabric_open(kind, &options, &l.worker);
    if (error == 0)
        error = talk(&l, address, ret_step);
    fabric_close(l.worker);
    fabric_close(l.lane);
    return error;
}

static void check(struct view_checks *checks, const char *name, const char *kind,
                  const char *address, const char *advice)
{
    const char *step;
    char lack[SHORTAGE_BYTES];
    int error = connect_to_self(kind, address, &step);
    if (shortage_is_refusal(error) && strcmp(kind, "shm") == 0)
        doctor_say(checks, name, VIEW_WARN,
                   "see the line memfd; until then workers and lanes of this host use TCP",
                   "%s failed: the kernel refuses a system call (%s)", step, err_text(error));
    else if (error < 0)
        doctor_say(checks, name, VIEW_FAIL, advice, "%s failed: %s", step,
                   error == -ENOSYS ? "libfabric has no such provider"
                                    : shortage_text(error, SHORTAGE_OTHER, lack, sizeof lack));
    else
        doctor_say(checks, name, VIEW_OK, NULL, "a test connection on this host carries a message");
}

void doctor_fabrics(struct view_checks *checks)
{
    char address[FABRIC_ADDRESS_BYTES_MAX];
    unique_name("@gradpool-doctor", address, sizeof address);
    check(checks, "shm", "shm", address,
          "allow Unix sockets and passing descriptors over them; until then "
          "GRADPOOL_TRANSPORT=tcp");
    check(checks, "tcp", "ofi", "127.0.0.1:0",
          getenv("FI_PROVIDER") ? "FI_PROVIDER is set: it must name tcp"
                                : "install libfabric with its tcp provider (fi_info -p tcp shows "
                                  "it), and let processes connect to 127.0.0.1");
}
