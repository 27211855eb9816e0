/* The aggregator process: cores, lanes and signals. Owns the threads of the lanes. The lanes
 * continue to serve workers while the coordinator is away. svc/lane/RULES.md: A9, A10. */
#include "svc/aggregator/aggregator.h"

#include "svc/aggregator/copying/copying.h"
#include "svc/aggregator/internal.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/base/system/descriptors.h"
#include "svc/base/system/shortage.h"
#include "svc/base/system/signals.h"
#include "svc/lane/turn/policy.h"
#include "svc/lane/worker/lending.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define JOIN_DEADLINE_NS (10 * NS_PER_S)
#define REJOIN_DEADLINE_NS (2 * NS_PER_S)
#define REJOIN_PAUSE_MS 200
/* maximum time without a coordinator, for a process that has neither workers nor copies */
#define UNUSED_ORPHAN_NS (60 * NS_PER_S)
#define DESCRIPTORS_PROCESS 16
/* file descriptors for one lane: about twelve for the lane itself, and the others for its first
 * workers */
#define DESCRIPTORS_LANE 24

/* Blocks the signals. All threads inherit the signal mask, so only the control loop receives
 * signals. */
static int take_signals(struct aggregator *a)
{
    sigset_t set = signals_that_end();
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    /* without this, a write of a libfabric provider to a socket whose peer has ended would end this
     * process */
    sigaction(SIGPIPE, &ignore, NULL);
    return a->signal_fd < 0 ? -errno : 0;
}

/* Finds the address that workers use: the option, or the address from which this host connects to
 * the coordinator. */
static int find_host(struct aggregator *a, struct err *err)
{
    const struct aggregator_options *o = a->options;
    int fd = -1;
    if (o->advertise) {
        snprintf(a->host, sizeof a->host, "%s", o->advertise);
        return 0;
    }
    if (a->coordinator.is_unix && !o->interface_name) {
        snprintf(a->host, sizeof a->host, "127.0.0.1");
        return 0;
    }
    int error = o->interface_name ? 0
                                  : endpoint_connect(&a->coordinator,
                                                     clock_now_ns() + JOIN_DEADLINE_NS, &fd, err);
    if (error < 0)
        return error;
    error = endpoint_local_address(o->interface_name, fd, a->host, sizeof a->host);
    if (fd >= 0)
        close(fd);
    if (error < 0)
        return err_set(err, error,
                       "no address was found on %s; give this host's address with --advertise",
                       o->interface_name ? o->interface_name : "the way to the coordinator");
    return 0;
}

/* Warns if workers on other hosts cannot use the address. This happens if --join contains the name
 * of this host, because Debian resolves a host's own name to 127.0.1.1. */
static void warn_of_loopback(const struct aggregator *a)
{
    struct endpoint data = {0};
    char address[INET6_ADDRSTRLEN];
    snprintf(data.host, sizeof data.host, "%s", a->host);
    bool is_meant = endpoint_is_loopback(&a->coordinator);
    bool is_name = endpoint_name_is_loopback(a->host, clock_now_ns() + JOIN_DEADLINE_NS, address,
                                             sizeof address);
    if (is_name || (!is_meant && endpoint_is_loopback(&data)))
        log_warn("lanes listen on %s%s%s, which workers of other hosts cannot reach; give an "
                 "address of this host with --advertise",
                 a->host, is_name ? ", which is " : "", is_name ? address : "");
}

static void format_ofi(const struct aggregator *a, size_t index, char *buffer, size_t buffer_bytes)
{
    uint16_t port = a->options->data_port ? (uint16_t)(a->options->data_port + index) : 0;
    bool is_v6 = strchr(a->host, ':') != NULL;
    snprintf(buffer, buffer_bytes, is_v6 ? "[%s]:%u" : "%s:%u", a->host, port);
}

static void note_failure(void *context)
{
    eventfd_write(((struct aggregator *)context)->failure_fd, 1);
}

static void note_moving(void *context)
{
    eventfd_write(((struct aggregator *)context)->moving_fd, 1);
}

static void note_wish(void *context)
{
    struct aggregator *a = context;
    atomic_store(&a->memory_wanted, true);
    eventfd_write(a->moving_fd, 1);
}

static int start_lane(struct aggregator *a, size_t index, struct err *err)
{
    char shm[FABRIC_ADDRESS_BYTES_MAX], ofi[FABRIC_ADDRESS_BYTES_MAX + 256];
    struct fabric_options fabric = {.may_lend = lending_may,
                                    .interface_name = a->options->interface_name,
                                    .provider = a->options->provider,
                                    .payload_bytes_max = 64u << 10,
                                    .allowed_uids = a->options->allowed_uids,
                                    .allowed_uids_count = a->options->allowed_uids_count};
    snprintf(shm, sizeof shm, "@gradpool-%016llx-%zu", (unsigned long long)a->incarnation, index);
    format_ofi(a, index, ofi, sizeof ofi);
    struct lane_thread_options options = {.incarnation = a->incarnation,
                                          .cores = a->cores,
                                          .position = index % cores_count(a->cores),
                                          .shm_address = shm,
                                          .ofi_address = ofi,
                                          .fabric_options = &fabric,
                                          .kernels = a->kernels,
                                          .policy = a->policy,
                                          .job_failed = note_failure,
                                          .moving_news = note_moving,
                                          .memory_wanted = note_wish,
                                          .context = a};
    int error = lane_thread_start(&options, &a->lanes[index], err);
    struct err why = *err;
    if (error == -EADDRNOTAVAIL && a->options->advertise)
        err_set(err, error, "--advertise %s: not an address of this host (%s)",
                a->options->advertise, why.text);
    return error;
}

static size_t lanes_wanted(const struct aggregator *a)
{
    uint32_t per_core = a->options->lanes_per_core ? a->options->lanes_per_core : 1;
    size_t wanted = cores_count(a->cores) * per_core;
    return wanted < AGGREGATOR_LANES_MAX ? wanted : AGGREGATOR_LANES_MAX;
}

/* Checks the limit on open files at the start, because a lane that cannot open its own descriptors
 * would later fail without a clear reason. Descriptors of workers are not checked: a lane without
 * free descriptors refuses a worker, and sends the reason. */
static int check_descriptors(const struct aggregator *a, struct err *err)
{
    char whose[64];
    size_t lanes = lanes_wanted(a);
    snprintf(whose, sizeof whose, "an aggregator with %zu lane%s", lanes, lanes == 1 ? "" : "s");
    return descriptors_raise(DESCRIPTORS_PROCESS + lanes * DESCRIPTORS_LANE, whose, err);
}

static int start_lanes(struct aggregator *a, struct err *err)
{
    size_t wanted = lanes_wanted(a);
    int error = check_descriptors(a, err);
    for (size_t i = 0; i < wanted && error == 0; i++) {
        error = start_lane(a, i, err);
        a->lanes_count += error == 0;
    }
    return error;
}

static int find_kernels(struct aggregator *a, struct err *err)
{
    const char *name = a->options->kernels ? a->options->kernels : "best";
    int error = reduce_set_find(name, &a->kernels);
    if (error == -ENOTSUP)
        return err_set(err, error,
                       "--kernels %s: this processor lacks these instructions; choose best or c",
                       name);
    if (error < 0)
        return err_set(err, error, "--kernels %s: expected best, c, avx2 or avx512", name);
    log_info("sums with %s", reduce_set_name(a->kernels));
    return 0;
}

static int find_policy(struct aggregator *a, struct err *err)
{
    const char *name = a->options->lane_policy ? a->options->lane_policy : "fair";
    int error = lane_policy_find(name, &a->policy);
    return error < 0
               ? err_set(err, error, "--lane-policy %s: expected fair, shortest or fifo", name)
               : 0;
}

/* Reads the key for TCP. A Unix socket needs no key, because the kernel supplies the uid of this
 * process. */
static int read_key(struct aggregator *a, struct err *err)
{
    int found = a->coordinator.is_unix ? 0 : key_from_environment(&a->key, err);
    a->has_key = found > 0;
    return found < 0 ? found : 0;
}

static int check_ports(const struct aggregator *a, struct err *err)
{
    size_t first = a->options->data_port, lanes = lanes_wanted(a);
    if (first + lanes - 1 <= UINT16_MAX || first == 0)
        return 0;
    return err_set(err, -EINVAL, "--data-port %zu: the ports of %zu lanes would end above %u",
                   first, lanes, UINT16_MAX);
}

/* Checks the options. aggregator_run() returns -EINVAL or -ENODEV only if this function has
 * returned that error. */
static int take_options(struct aggregator *a, struct err *err)
{
    const char *interface_name = a->options->interface_name;
    int error = find_kernels(a, err);
    if (error == 0)
        error = find_policy(a, err);
    if (error == 0)
        error = endpoint_parse(a->options->join, &a->coordinator, err);
    if (error == 0)
        error = read_key(a, err);
    if (error == 0)
        error = cores_create(a->options->cores, &a->cores, err);
    if (error == 0)
        error = check_ports(a, err);
    if (error == 0 && interface_name && if_nametoindex(interface_name) == 0)
        error = err_set(err, -ENODEV,
                        "--interface %s: this host has no such network interface; see `ip address`",
                        interface_name);
    return error;
}

/* Joins the coordinator for the first time. A signal during this join ends the process at once,
 * because the coordinator does not know the process yet. */
static int join_first(struct aggregator *a, struct err *err)
{
    sigset_t set = signals_that_end();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    int error = control_join(a, clock_now_ns() + JOIN_DEADLINE_NS, err);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return error;
}

static int open_events(struct aggregator *a, struct err *err)
{
    a->failure_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    a->moving_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    a->keep_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    char lack[SHORTAGE_BYTES];
    if (a->failure_fd < 0 || a->moving_fd < 0 || a->keep_fd < 0)
        return err_set(err, -errno, "no eventfd: %s",
                       shortage_text(-errno, SHORTAGE_OTHER, lack, sizeof lack));
    return 0;
}

static int start(struct aggregator *a, struct err *err)
{
    int error = find_host(a, err);
    if (error == 0)
        warn_of_loopback(a);
    if (error == 0 && getrandom(&a->incarnation, sizeof a->incarnation, 0) < 0)
        error = err_set(err, -errno, "no random numbers: %s", err_text(-errno));
    if (error == 0)
        error = open_events(a, err);
    if (error == 0)
        error = start_lanes(a, err);
    if (error == 0)
        error = join_first(a, err);
    return error == -EINVAL || error == -ENODEV ? -EIO : error;
}

/* Ends the lanes. Pending releases have registered requests at their lanes (A38). moving_abandon()
 * cancels these requests while the lanes still run. */
void aggregator_end_lanes(struct aggregator *a)
{
    moving_abandon(a);
    keeping_abandon(a);
    ahead_abandon(a);
    for (size_t i = 0; i < a->lanes_count; i++)
        lane_thread_stop(a->lanes[i]);
    a->lanes_count = 0;
}

static void stop(struct aggregator *a)
{
    aggregator_end_lanes(a);
    holder_destroy(a->holder);
    timeline_free(a);
    if (a->number)
        control_leave(a);
    channel_destroy(a->channel);
    cores_destroy(a->cores);
    if (a->signal_fd >= 0)
        close(a->signal_fd);
    if (a->failure_fd >= 0)
        close(a->failure_fd);
    if (a->moving_fd >= 0)
        close(a->moving_fd);
    if (a->keep_fd >= 0)
        close(a->keep_fd);
}

static void look_at_signals(struct aggregator *a)
{
    struct signalfd_siginfo info;
    while (read(a->signal_fd, &info, sizeof info) == sizeof info)
        leaving_signal(a, info.ssi_signo);
    leaving_check(a);
}

/* Checks the deadlines of ranks that may connect again, and reports failures of lanes. While the
 * coordinator is away, failures are not reported; after the next join serve_failures() reports all
 * of them. */
static void look_at_failures(struct aggregator *a)
{
    eventfd_t failures;
    bool has_news = eventfd_read(a->failure_fd, &failures) == 0;
    away_look(a, has_news);
    if (!has_news || !a->channel)
        return;
    (void)serve_failures(a); /* after an error the next receive detects the broken channel */
    (void)moving_recheck(a);
    (void)keeping_copied(a);
}

static void look_at_moves(struct aggregator *a)
{
    eventfd_t news;
    bool is_told = eventfd_read(a->moving_fd, &news) == 0;
    if (is_told && atomic_exchange(&a->memory_wanted, false)) {
        memory_serve_wishes(a);
        (void)allow_ask(a, false); /* after an error the next receive detects the broken channel */
    }
    if (a->channel && (is_told || moving_timeout_ms(a) == 0))
        (void)moving_rested(a);
    if (a->channel && is_told)
        (void)keeping_copied(a);
    if (is_told)
        (void)copying_look(a, false);
    if (a->channel)
        (void)ahead_look(a);
}

/* Returns the shorter timeout for poll(); -1 means infinite. */
static int sooner(int a_ms, int b_ms)
{
    return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

/* Sleeps until the coordinator, a lane, the replica holder or a signal has an event, and handles
 * the event. */
static void wait_for_news(struct aggregator *a, int timeout_ms)
{
    struct pollfd fds[5] = {{.fd = a->signal_fd, .events = POLLIN},
                            {.fd = a->failure_fd, .events = POLLIN},
                            {.fd = a->moving_fd, .events = POLLIN},
                            {.fd = a->keep_fd, .events = POLLIN},
                            {.fd = -1}};
    if (a->channel)
        fds[4] = (struct pollfd){.fd = channel_fd(a->channel),
                                 .events = (short)channel_events(a->channel)};
    timeout_ms = sooner(timeout_ms, leaving_timeout_ms(a));
    timeout_ms = sooner(timeout_ms, away_timeout_ms(a));
    timeout_ms = sooner(timeout_ms, ahead_timeout_ms(a));
    (void)poll(fds, 5, sooner(timeout_ms, keeping_timeout_ms(a)));
    look_at_signals(a);
    look_at_failures(a);
    look_at_moves(a);
    (void)keeping_ask(a);
    copying_pass_on(a);
}

static void lose_coordinator(struct aggregator *a, int reason)
{
    const char *detail = channel_failure(a->channel);
    log_warn("the connection to the coordinator has ended (%s%s%s); lanes continue, and this "
             "aggregator connects again",
             err_text(reason), detail && *detail ? ": " : "", detail ? detail : "");
    channel_destroy(a->channel);
    a->channel = NULL;
    moving_abandon(a);
    keeping_abandon(a);
    ahead_abandon(a);
    timeline_abandon(a);
    bulk_abandon(a);
}

/* Returns whether the process has waited too long for a coordinator. A process waits for the whole
 * timeout if it has workers, or if lanes of other aggregators write copies to it. Any other process
 * waits for a shorter time. */
static bool is_orphan(struct aggregator *a, uint64_t away_since_ns)
{
    uint64_t timeout_ns = a->options->orphan_timeout_ns;
    bool is_used = serve_connections(a) > 0 || keeping_is_used(a);
    if (!is_used && timeout_ns > UNUSED_ORPHAN_NS)
        timeout_ns = UNUSED_ORPHAN_NS;
    return timeout_ns && clock_now_ns() - away_since_ns > timeout_ns;
}

/* Sends the reason for the end to workers that still train. Without a coordinator, only the lanes
 * can send the reason. */
static void tell_workers_of_end(struct aggregator *a)
{
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text,
             "there has been no coordinator for %llu s (--orphan-timeout): start gradpool serve "
             "again, then the job",
             (unsigned long long)(a->options->orphan_timeout_ns / NS_PER_S));
    serve_end_jobs(a, -ESHUTDOWN, text);
}

static void rejoin(struct aggregator *a)
{
    uint64_t away_since_ns = clock_now_ns();
    struct err err;
    while (!a->is_draining) {
        uint64_t deadline_ns = leaving_deadline_ns(a, clock_now_ns() + REJOIN_DEADLINE_NS);
        int error = control_join(a, deadline_ns, &err);
        if (error == 0) {
            log_info("this aggregator joined again, as aggregator %u", a->number);
            return;
        }
        /* The coordinator process is ending, so the tasks cannot move to another aggregator. */
        bool is_stopped = error == -ESHUTDOWN && a->leave_by_ns > 0;
        bool is_refused =
            error == -ESTALE || error == -EKEYREJECTED || error == -EKEYREVOKED || is_stopped;
        if (is_refused || is_orphan(a, away_since_ns)) {
            log_error("this aggregator ends: %s", err.text);
            if (!is_refused)
                tell_workers_of_end(a);
            a->is_draining = true;
            a->is_stale = error == -ESTALE;
            return;
        }
        wait_for_news(a, REJOIN_PAUSE_MS);
    }
}

static void loop(struct aggregator *a)
{
    while (!a->is_draining) {
        if (!a->channel)
            rejoin(a);
        int error = a->channel ? control_receive(a) : 0;
        if (error < 0 && error != -EAGAIN)
            lose_coordinator(a, error);
        else if (!a->is_draining)
            wait_for_news(a, moving_timeout_ms(a));
    }
}

int aggregator_run(const struct aggregator_options *options)
{
    struct aggregator a = {
        .options = options, .signal_fd = -1, .failure_fd = -1, .moving_fd = -1, .keep_fd = -1};
    struct err err = {0};
    gethostname(a.node, sizeof a.node - 1);
    int error = take_signals(&a) ?: take_options(&a, &err) ?: start(&a, &err);
    if (error < 0)
        log_error("cannot start: %s", err.text[0] ? err.text : err_text(error));
    else
        loop(&a);
    stop(&a);
    if (error == 0)
        log_info("this aggregator has no tasks left, and ends");
    return error == 0 && a.is_stale ? -ESTALE : error;
}
