/* The end of the service: in order (jobs, aggregators, itself), at once, or leaving jobs and local
 * aggregators to the next start. Owns the phase of the service from SERVICE_UP on. Must never end a
 * job that a later start can go on with, unless an operator said so. README: K91 to K93. */
#include "svc/coordinator/stopping.h"

#include "svc/base/log.h"
#include "svc/base/process.h"
#include "svc/base/text.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Inode of the host's own PID namespace (PROC_PID_INIT_INO of the kernel). */
#define HOST_NAMESPACE UINT64_C(0xeffffffc)

/* --- where local aggregators end with this process --- */

/* The end of the first process ends a container, and so does that of its only child, where the
 * first is an init such as tini. */
static bool is_first_of_container(void)
{
    uint64_t namespace = process_namespace();
    bool is_inside = namespace != 0 && namespace != HOST_NAMESPACE;
    return getpid() == 1 || (is_inside && getppid() == 1);
}

/* The main process of a unit. Which processes systemd kills with it (KillMode) is not known here.
 */
static bool is_main_of_unit(void)
{
    const char *told = getenv("SYSTEMD_EXEC_PID");
    uint64_t pid;
    return told && text_parse_u64(told, 1, UINT32_MAX, &pid) == 0 && pid == (uint64_t)getpid();
}

static const char *why_aggregators_end(void)
{
    if (is_first_of_container())
        return "local aggregators end with this process, the first of its container";
    if (is_main_of_unit())
        return "local aggregators may end with this systemd unit; with KillMode=process they stay: "
               "then give --stop service";
    return NULL;
}

static bool has_local_aggregators(const struct service *s)
{
    list_for_each (node, &s->aggregators) {
        const struct aggregator *a = list_entry(node, struct aggregator, link);
        if (a->slot && a->state != AGGREGATOR_LOST)
            return true;
    }
    return false;
}

/* Whether SIGTERM ends jobs in training, and why; NULL: they train on (K91, K93). */
static const char *why_jobs_end(const struct service *s)
{
    if (s->options.ends_jobs)
        return "--stop jobs";
    return s->options.keeps_jobs || !has_local_aggregators(s) ? NULL : s->takes_along;
}

/* --- leaving --- */

static size_t count_live_jobs(const struct service *s)
{
    size_t count = 0;
    list_for_each (node, &s->jobs)
        count += !list_entry(node, struct job, link)->failure;
    return count;
}

/* As after kill -9, but for aggregators that are still starting: nothing depends on them yet. What
 * is under way (a move, a snapshot, a request) ends as after a crash. */
static void leave(struct service *s, size_t jobs)
{
    char patience[64] = "as long as it takes";
    if (s->options.orphan_timeout_ns)
        snprintf(patience, sizeof patience, "%llu s (--orphan-timeout)",
                 (unsigned long long)(s->options.orphan_timeout_ns / NS_PER_S));
    log_info("leaving: %zu job%s without a coordinator; local aggregators wait for the next start "
             "with --state-dir %s, %s; `gradpool stop' in place of SIGTERM ends the jobs",
             jobs, jobs == 1 ? " trains on" : "s train on", s->options.state_dir, patience);
    fleet_end_starting(s);
    s->phase = SERVICE_DOWN;
}

/* --- ending in order: jobs, aggregators, the coordinator --- */

static void end_jobs(struct service *s, const char *why)
{
    list_for_each_safe (node, &s->jobs) {
        struct job *job = list_entry(node, struct job, link);
        jobs_fail(job, NULL, -ESHUTDOWN, "%s", why);
        jobs_end(job);
    }
}

/* `why`: what workers are told. */
static void end_in_order(struct service *s, const char *why)
{
    s->phase = SERVICE_DRAINING;
    end_jobs(s, why);
    timer_start(&s->loop, &s->drain_timer, clock_now_ns() + DRAIN_DEADLINE_NS);
    list_for_each (node, &s->aggregators)
        aggregator_drain(list_entry(node, struct aggregator, link));
    fleet_drain(s, false);
    service_check_drained(s);
}

static void end_for_operator(struct service *s, const char *how)
{
    char why[ERR_TEXT_BYTES];
    snprintf(why, sizeof why, "the operator stopped the service (%s)", how);
    size_t jobs = count_live_jobs(s);
    log_info("stopping (%s): %zu job%s, then the aggregators, then this process; one more signal "
             "ends all at once",
             how, jobs, jobs == 1 ? " ends" : "s end");
    end_in_order(s, why);
}

void service_give_up(struct service *s, int code)
{
    if (s->phase != SERVICE_UP)
        return;
    s->ended_by = code;
    s->phase = SERVICE_DRAINING; /* nothing more is started */
    timer_start(&s->loop, &s->give_up_timer, 0);
}

/* Jobs are destroyed by the loop alone (K5): whoever gives up may work on one. */
static void give_up(struct timer *timer)
{
    end_in_order(container_of(timer, struct service, give_up_timer),
                 "gradpool serve could not go on; its log says why");
}

static bool is_about_to_end_jobs(const struct service *s)
{
    return !list_is_empty(&s->give_up_timer.link);
}

void service_check_drained(struct service *s)
{
    if (s->phase != SERVICE_DRAINING || is_about_to_end_jobs(s) || !fleet_is_gone(s))
        return;
    list_for_each (node, &s->aggregators)
        if (list_entry(node, struct aggregator, link)->state != AGGREGATOR_LOST)
            return;
    s->phase = SERVICE_DOWN;
    log_info("stopped");
}

/* --- at once --- */

/* Aggregators on other hosts end by themselves. */
static void end_now(struct service *s)
{
    fleet_drain(s, true);
    list_for_each_safe (node, &s->aggregators) {
        struct aggregator *a = list_entry(node, struct aggregator, link);
        if (a->process.fd >= 0)
            process_kill(a->process.fd, SIGKILL);
        else if (a->peer)
            peer_break(a->peer);
    }
}

static void drain_overdue(struct timer *timer)
{
    log_warn("aggregators are still busy after %d s: ending them",
             (int)(DRAIN_DEADLINE_NS / NS_PER_S));
    end_now(container_of(timer, struct service, drain_timer));
}

/* --- what asks for it --- */

void stopping_init(struct service *s)
{
    s->takes_along = why_aggregators_end();
    timer_init(&s->drain_timer, drain_overdue);
    timer_init(&s->give_up_timer, give_up);
}

static void terminate(struct service *s)
{
    size_t jobs = count_live_jobs(s);
    const char *why = jobs > 0 ? why_jobs_end(s) : NULL;
    if (jobs > 0 && !why)
        return leave(s, jobs);
    if (why)
        log_warn("SIGTERM ends the jobs: %s", why);
    end_for_operator(s, "SIGTERM");
}

void stopping_signal(struct service *s, int number)
{
    if (number == SIGHUP)
        return log_info("SIGHUP: there is nothing to reload; SIGTERM or `gradpool stop' ends the "
                        "service");
    if (s->phase == SERVICE_UP && number == SIGTERM)
        return terminate(s);
    if (s->phase == SERVICE_UP)
        return end_for_operator(s, "SIGINT");
    if (s->phase != SERVICE_DRAINING)
        return;
    log_warn("one more signal: ending at once");
    s->ended_by = number;
    end_now(s);
}

void stopping_handle(struct peer *p, const envelope *request)
{
    struct service *s = p->service;
    if (!p->is_local)
        return peer_fail(p, request->id, -EPERM,
                         "the service is stopped on its own host only, over the Unix socket in its "
                         "state dir");
    peer_reply_done(p, request->id);
    if (s->phase == SERVICE_UP)
        end_for_operator(s, "gradpool stop");
}
