/* gradpool stop: ends the jobs, then the aggregators, then the coordinator. Only the Unix socket in
 * the state directory is used. */
#include "svc/base/clock.h"
#include "svc/base/system/process.h"
#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

/* Longest wait for the end of the service. The coordinator's wait for its aggregators is shorter,
 * even on a host that is five times slower than usual. */
#define END_NS (60 * NS_PER_S)
#define LOOK_NS (10 * NS_PER_MS)

enum { STATE_DIR };

const struct knob stop_knobs[] = {
    [STATE_DIR] = {"state-dir", "DIR",
                   "state directory of gradpool serve (default: the default "
                   "of gradpool serve)",
                   KNOB_VARIABLE},
    {0},
};

static int set(void *context, int index, const char *value, struct err *err)
{
    *(const char **)context = value;
    return 0;
}

static void parse(int argc, char **argv, const char **ret_state_dir)
{
    static const struct knob_command command = {
        .name = "gradpool stop",
        .knobs = stop_knobs,
        .set = set,
        .before = "Ends the service: first all jobs, whose workers receive an error with the "
                  "reason, then the aggregators, then gradpool serve. Returns after the end of "
                  "gradpool serve. Runs on the coordinator's host. To restart the service while "
                  "jobs train, send SIGTERM to gradpool serve instead and start it again: the "
                  "jobs continue.",
        .after = "Examples:\n"
                 "  gradpool stop\n"
                 "  gradpool stop --state-dir /var/lib/gradpool\n\n"
                 "Exit code: 0 ended; 1 failed, or the service has not ended within a minute; 2 "
                 "a mistake on the command line; 3 no service there."};
    *ret_state_dir = NULL;
    knobs_parse(&command, argc, argv, ret_state_dir);
}

/* Drops messages until the connection ends, which means that the service has ended. Returns whether
 * the connection has ended. */
static bool has_hung_up(struct channel *channel)
{
    struct pollfd end = {.fd = channel_fd(channel), .events = POLLIN};
    envelope *message;
    int error;
    (void)poll(&end, 1, (int)(LOOK_NS / NS_PER_MS));
    while ((error = channel_receive(channel, &message)) == 0)
        gradpool__wire__envelope__free_unpacked(message, NULL);
    return error != -EAGAIN;
}

/* Returns the process number of the coordinator, or 0 if it is in another PID namespace. */
static uint32_t process_of(const struct channel *channel)
{
    int pid;
    uint32_t uid;
    return channel_credentials(channel, &pid, &uid) == 0 && pid > 0 ? (uint32_t)pid : 0;
}

static bool is_running(uint32_t pid, uint64_t identity)
{
    return identity && process_identity(pid) == identity && process_state(pid) != 'Z';
}

/* Waits for the end of the connection, and for the end of the process shortly afterwards. */
static bool wait_for_end(struct channel *channel, uint32_t pid, uint64_t identity)
{
    const struct timespec again = {0, LOOK_NS};
    uint64_t deadline_ns = clock_now_ns() + END_NS;
    bool is_gone = false;
    while (!is_gone && clock_now_ns() < deadline_ns)
        is_gone = has_hung_up(channel);
    while (is_running(pid, identity) && clock_now_ns() < deadline_ns)
        nanosleep(&again, NULL);
    return is_gone && !is_running(pid, identity);
}

static int stop(struct channel *channel, const char *endpoint, struct err *err)
{
    uint32_t pid = process_of(channel);
    uint64_t identity = process_identity(pid);
    envelope *reply;
    int error = operator_call(channel, &MESSAGE(0, STOP_REQUEST, stop_request), &reply, err);
    if (error < 0)
        return operator_explain(endpoint, channel, error, err);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    if (wait_for_end(channel, pid, identity))
        return 0;
    return err_set(err, -ETIMEDOUT,
                   "the service at %s has begun to stop, but has not ended within %d s: see the "
                   "log of gradpool serve; one more signal ends the service at once",
                   endpoint, (int)(END_NS / NS_PER_S));
}

int cli_stop(int argc, char **argv)
{
    const char *state_dir;
    char endpoint[OPERATOR_SOCKET_BYTES];
    struct channel *channel = NULL;
    struct err err = {0};
    parse(argc, argv, &state_dir);
    operator_socket(state_dir, endpoint, sizeof endpoint);
    int error = operator_open(endpoint, &channel, &err) ?: stop(channel, endpoint, &err);
    channel_destroy(channel);
    if (error < 0)
        fprintf(stderr, "gradpool stop: %s\n", err.text);
    else
        printf("the service at %s has ended\n", endpoint);
    return error == 0 ? CLI_OK : error == -EHOSTDOWN ? CLI_NOTHING : CLI_FAILED;
}
