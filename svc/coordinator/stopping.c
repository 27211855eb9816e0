/* End of the service, in one of three ways. In order: jobs end first, then aggregators, then the
 * process. At once: all processes are killed. Left: this process ends, but jobs and local
 * aggregators continue, and the next start of the service manages them. A job that a later start
 * could continue ends only at an operator's request. Owns the phase of the service after SERVICE_UP
 * (RULES.md: K91 to K93, K107). */
#include "svc/coordinator/stopping.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/process.h"
#include "svc/coordinator/order/leaving.h"
#include "svc/coordinator/order/outliving.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/slots/slots.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

/* --- whether SIGTERM ends jobs --- */

static bool has_local_aggregators(const struct service *s)
{
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link)
        if (ends_with_service(a) && a->state != AGGREGATOR_LOST)
            return true;
    return false;
}

/* Returns why SIGTERM has to end the jobs; NULL: the jobs continue to train (K91, K93). */
static const char *why_jobs_end(const struct service *s)
{
    if (s->options->ends_jobs)
        return "--stop jobs";
    return s->options->keeps_jobs || !has_local_aggregators(s) ? NULL : s->ending->takes_along;
}

/* --- jobs left to the next start --- */

static size_t count_live_jobs(const struct service *s)
{
    size_t count = 0;
    list_for_each (node, &s->jobs)
        count += !list_entry(node, struct job, link)->failure;
    return count;
}

/* Ends the process without ending its jobs. Aggregators that are still starting end first, because
 * no job uses them yet. The next start handles an unfinished move, snapshot or request as after a
 * crash of the coordinator. */
static void leave(struct service *s, size_t jobs)
{
    char patience[64] = "as long as it takes";
    if (s->options->orphan_timeout_ns)
        snprintf(patience, sizeof patience, "%llu s (--orphan-timeout)",
                 (unsigned long long)(s->options->orphan_timeout_ns / NS_PER_S));
    log_info("gradpool serve ends: %zu job%s without a coordinator; local aggregators wait for the "
             "next start with --state-dir %s, %s; to end the jobs, too, use `gradpool stop'",
             jobs, jobs == 1 ? " trains on" : "s train on", s->options->state_dir, patience);
    fleet_end_starting(s);
    s->phase = SERVICE_DOWN;
}

/* --- ending in order: jobs, aggregators, the coordinator --- */

static void end_jobs(struct service *s, const char *why)
{
    list_for_each_safe_entry (struct job, job, &s->jobs, link) {
        jobs_fail(job, NULL, -ESHUTDOWN, "%s", why);
        jobs_end(job);
    }
    slots_end_jobs(s, why);
}

/* Ends jobs, then aggregators, then the process. Workers receive `why` as the reason. */
static void end_in_order(struct service *s, const char *why)
{
    s->fleet->leave_done = NULL;
    s->phase = SERVICE_DRAINING;
    end_jobs(s, why);
    timer_start(s->loop, &s->ending->drain_timer, clock_now_ns() + DRAIN_DEADLINE_NS);
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        aggregator_drain(a);
    fleet_drain(s, false);
    service_check_drained(s);
}

static void end_for_operator(struct service *s, const char *how)
{
    char why[ERR_TEXT_BYTES];
    snprintf(why, sizeof why, "the operator stopped the service (%s)", how);
    size_t jobs = count_live_jobs(s);
    log_info("stopping (%s): %zu job%s, then the aggregators, then this process; one more signal "
             "ends them at once",
             how, jobs, jobs == 1 ? " ends" : "s end");
    end_in_order(s, why);
}

void service_give_up(struct service *s, int code)
{
    if (s->phase != SERVICE_UP)
        return;
    s->ending->ended_by = code;
    s->phase = SERVICE_DRAINING; /* in this phase no new work starts */
    timer_start(s->loop, &s->ending->give_up_timer, 0);
}

/* Ends the service. A timer calls this function, because the caller of service_give_up() may still
 * use a job that this function frees (K5). */
static void give_up(struct timer *timer)
{
    end_in_order(container_of(timer, struct service_end, give_up_timer)->service,
                 "gradpool serve cannot continue; see its log");
}

static bool is_about_to_end_jobs(const struct service *s)
{
    return !list_is_empty(&s->ending->give_up_timer.link);
}

void service_check_drained(struct service *s)
{
    leaving_check_done(s);
    if (s->phase != SERVICE_DRAINING || is_about_to_end_jobs(s) || !fleet_is_gone(s))
        return;
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        if (a->state != AGGREGATOR_LOST)
            return;
    s->phase = SERVICE_DOWN;
    log_info("gradpool serve has stopped");
}

/* --- at once --- */

/* Kills the local aggregators, and disconnects the others. While tasks are moving away (leave_done
 * is set), aggregators that should continue after this process are left alone. */
static void end_now(struct service *s)
{
    fleet_drain(s, true);
    list_for_each_safe_entry (struct aggregator, a, &s->aggregators, link) {
        if (s->fleet->leave_done && !ends_with_service(a))
            continue;
        if (a->process.fd >= 0)
            process_kill(a->process.fd, SIGKILL);
        else if (a->peer)
            peer_break(a->peer);
    }
}

static void drain_overdue(struct timer *timer)
{
    log_warn("aggregators are still busy after %d s: the service kills them",
             (int)(DRAIN_DEADLINE_NS / NS_PER_S));
    end_now(container_of(timer, struct service_end, drain_timer)->service);
}

/* --- tasks and state move away first, if local aggregators end with this process --- */

/* Called when all tasks and replicas have moved away from the ending aggregators. Jobs with other
 * aggregators continue without this process. If no such aggregator exists, all jobs end. */
static void departed(struct service *s)
{
    size_t jobs = outliving_has_any(s) ? count_live_jobs(s) : 0;
    timer_stop(&s->ending->drain_timer);
    if (jobs == 0)
        return end_for_operator(s, "SIGTERM");
    log_info("gradpool serve ends: %zu job%s without a coordinator; the remaining aggregators "
             "wait for the next start with --state-dir %s, as long as their --orphan-timeout",
             jobs, jobs == 1 ? " trains on" : "s train on", s->options->state_dir);
    s->phase = SERVICE_DOWN;
}

static void depart(struct service *s)
{
    uint64_t by_ns = clock_now_ns() + s->options->leave_timeout_ns;
    log_info("stopping (SIGTERM): %s, so their tasks move to others first, within %llu s "
             "(--leave-timeout); jobs whose tasks cannot move end; one more signal ends the local "
             "aggregators at once",
             s->ending->takes_along, (unsigned long long)(s->options->leave_timeout_ns / NS_PER_S));
    timer_start(s->loop, &s->ending->drain_timer, by_ns + DRAIN_DEADLINE_NS);
    state_leaves(s, by_ns, departed);
}

/* Handles a second signal while tasks are moving away. Jobs whose tasks have moved continue; all
 * others end. */
static void depart_now(struct service *s, int number)
{
    log_warn("one more signal: gradpool serve ends at once");
    s->ending->ended_by = number;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link)
        if (ends_with_service(a) && a->state != AGGREGATOR_LOST)
            leaving_end_jobs(a);
    end_now(s);
}

/* --- signals and requests --- */

void stopping_init(struct service *s)
{
    timer_init(&s->ending->drain_timer, drain_overdue);
    timer_init(&s->ending->give_up_timer, give_up);
}

static void terminate(struct service *s)
{
    size_t jobs = count_live_jobs(s) + slots_count_unjoined(s);
    const char *why = jobs > 0 ? why_jobs_end(s) : NULL;
    if (jobs > 0 && !why)
        return leave(s, jobs);
    if (why && !s->options->ends_jobs && s->options->leave_timeout_ns && outliving_has_any(s))
        return depart(s);
    if (why)
        log_warn("SIGTERM ends the jobs: %s", why);
    end_for_operator(s, "SIGTERM");
}

void stopping_signal(struct service *s, int number)
{
    if (number == SIGHUP)
        return log_info("SIGHUP has no effect, because gradpool serve reloads no files; SIGTERM or "
                        "`gradpool stop' ends the service");
    if (s->phase == SERVICE_UP && s->fleet->leave_done)
        return depart_now(s, number);
    if (s->phase == SERVICE_UP && number == SIGTERM)
        return terminate(s);
    if (s->phase == SERVICE_UP)
        return end_for_operator(s, "SIGINT");
    if (s->phase != SERVICE_DRAINING)
        return;
    log_warn("one more signal: gradpool serve ends at once");
    s->ending->ended_by = number;
    end_now(s);
}

void stopping_handle(struct peer *p, const envelope *request)
{
    struct service *s = p->service;
    if (!p->is_local)
        return peer_fail(p, request->id, -EPERM,
                         "the service is stopped on its own host only: run gradpool stop there, as "
                         "the user of gradpool serve");
    peer_reply_done(p, request->id);
    if (s->phase == SERVICE_UP)
        end_for_operator(s, "gradpool stop");
}
