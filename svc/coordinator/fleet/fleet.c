/* Local aggregators. A slot is the place of one aggregator, with a share of the cores. Owns the
 * slots. Missing processes are started, at most RESTARTS_MAX a minute for each slot. A new process
 * never starts while the former aggregator of the slot may still be alive (K4). */
#include "svc/coordinator/fleet/fleet.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/aggregator/process.h"
#include "svc/coordinator/fleet/farewell.h"
#include "svc/coordinator/order/leaving.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/kept.h"
#include "svc/host/cores.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>

#define HANDOVER_DEADLINE_NS (30 * NS_PER_S)
#define HANDOVER_LOOK_NS (NS_PER_S / 4)

static struct aggregator *aggregator_of(const struct slot *slot)
{
    list_for_each_entry (struct aggregator, a, &slot->service->aggregators, link)
        if (a->slot == slot->number && a->state != AGGREGATOR_LOST)
            return a;
    return NULL;
}

static bool has_aggregator(const struct slot *slot) { return aggregator_of(slot); }

/* Returns whether the slot has an aggregator that is not about to end. */
static bool is_manned(const struct slot *slot)
{
    const struct aggregator *a = aggregator_of(slot);
    return a && !a->is_stopping;
}

/* Returns whether the service has a job, and an aggregator that is not lost. Failed starts in a
 * slot then do not end the service. */
static bool others_are_needed(const struct service *s)
{
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        if (a->state != AGGREGATOR_LOST)
            return !list_is_empty(&s->jobs);
    return false;
}

/* Called after a failed start; the slot is started again later. After START_FAILURES_MAX
 * consecutive failures the service ends instead, because the next start would fail for the same
 * reason. The service continues if other aggregators serve jobs. */
static void start_failed(struct slot *slot, const char *how)
{
    struct service *s = slot->service;
    if (++slot->start_failures < START_FAILURES_MAX || s->phase != SERVICE_UP ||
        others_are_needed(s))
        return;
    log_error("the service ends: the local aggregator on cores %s failed to start %u times in a "
              "row (%s); see the lines above for the reason",
              slot->cores, slot->start_failures, how);
    s->on->service->gives_up(s, -EIO);
}

static void ended(struct source *source, uint32_t events)
{
    struct slot *slot = container_of(source, struct slot, watch);
    struct service *s = slot->service;
    char how[64];
    bool gave_up =
        s->fleet->provisioner->ops->collect(s->fleet->provisioner, &slot->process, how, sizeof how);
    log_write(s->phase == SERVICE_UP && slot->is_wanted ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
              "the local aggregator with pid %d has ended: %s", slot->process.pid, how);
    loop_unwatch(s->loop, &slot->watch);
    close(slot->watch.fd);
    slot->watch.fd = -1;
    slot->process = (struct provisioned){.watch_fd = -1};
    if (gave_up && !slot->has_joined)
        start_failed(slot, how);
    fleet_check(s);
    s->on->aggregator->process_ended(s);
}

void fleet_kill(const struct aggregator *a)
{
    struct service *s = a->service;
    for (size_t i = 0; i < s->fleet->slots_count; i++) {
        struct slot *slot = &s->fleet->slots[i];
        if (slot->watch.fd >= 0 && slot->process.pid == (int)a->pid && a->identity)
            s->fleet->provisioner->ops->stop(s->fleet->provisioner, &slot->process, true);
    }
    farewells_kill(s, a);
}

static int make_grant(struct slot *slot)
{
    uint8_t bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return -EIO;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(slot->grant + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static int start(struct slot *slot, struct err *err)
{
    struct service *s = slot->service;
    char join[PATH_MAX + 8];
    snprintf(join, sizeof join, "unix:%s", s->door->local->endpoint.host);
    int error = make_grant(slot);
    if (error < 0)
        return err_set(err, error, "no random numbers: %s", err_text(error));
    slot->has_joined = false;
    struct provision what = {.join = join,
                             .service = s->options->name,
                             .cores = slot->cores,
                             .grant = slot->grant,
                             .advertise = s->identity->data_host,
                             .interface_name = s->options->interface_name,
                             .allow_uids = s->options->allow_uids,
                             .lanes_per_core = s->options->lanes_per_core,
                             .network_gbit = s->options->network_gbit,
                             .data_port = slot->data_port,
                             .orphan_timeout_ns = s->options->orphan_timeout_ns,
                             .leave_timeout_ns = s->options->leave_timeout_ns};
    error = s->fleet->provisioner->ops->start(s->fleet->provisioner, &what, &slot->process, err);
    if (error < 0)
        return error;
    slot->watch.fd = slot->process.watch_fd;
    log_info("the service started a local aggregator on cores %s, pid %d", slot->cores,
             slot->process.pid);
    return loop_watch(s->loop, &slot->watch, EPOLLIN);
}

/* Returns the earliest time of the slot's next start. RESTARTS_MAX starts are allowed in a
 * period. */
static uint64_t allowed_at(const struct slot *slot)
{
    if (slot->starts < RESTARTS_MAX)
        return 0;
    return slot->starts_ns[slot->starts % RESTARTS_MAX] + RESTARTS_PERIOD_NS;
}

static void ask_to_go(struct slot *slot, struct aggregator *a)
{
    slot->was_asked_to_go = true;
    slot->stop_by_ns = clock_now_ns() + DRAIN_DEADLINE_NS;
    timer_start(slot->service->loop, &slot->again, slot->stop_by_ns);
    aggregator_drain(a);
}

/* Continues to stop an aggregator after fleet_release(). First other holders copy the replicas that
 * it stores (K57). Then the aggregator is drained. At the deadline its process is killed. */
static void check_leaving(struct slot *slot)
{
    struct aggregator *a = aggregator_of(slot);
    if (!a || !a->is_stopping)
        return;
    bool is_over = clock_now_ns() >= slot->stop_by_ns;
    if (!slot->was_asked_to_go && !is_over && slot->service->on->aggregator->is_needed(a))
        return timer_start(slot->service->loop, &slot->again, clock_now_ns() + HANDOVER_LOOK_NS);
    if (!slot->was_asked_to_go)
        return ask_to_go(slot, a);
    if (!is_over)
        return;
    if (a->process.fd < 0)
        return fleet_kill(a);
    log_warn("%s has not drained: the service kills the process", AGGREGATOR_NAME(a));
    process_kill(a->process.fd, SIGKILL);
}

static void check(struct slot *slot)
{
    struct service *s = slot->service;
    uint64_t now_ns = clock_now_ns(), allowed_ns = allowed_at(slot);
    if (slot->watch.fd >= 0 || has_aggregator(slot))
        return check_leaving(slot);
    if (!slot->is_wanted || s->fleet->leave_done || fleet_lacks_port(slot))
        return;
    if (now_ns < allowed_ns) {
        if (list_is_empty(&slot->again.link))
            log_error("the local aggregator on cores %s has ended %d times within a minute: next "
                      "try in %llu s",
                      slot->cores, RESTARTS_MAX,
                      (unsigned long long)((allowed_ns - now_ns) / NS_PER_S));
        return timer_start(s->loop, &slot->again, allowed_ns);
    }
    struct err err;
    timer_stop(&slot->again);
    slot->starts_ns[slot->starts++ % RESTARTS_MAX] = now_ns;
    if (start(slot, &err) < 0) {
        log_error("%s", err.text);
        timer_start(s->loop, &slot->again, now_ns + NS_PER_S);
        start_failed(slot, err_text(err.code));
    }
}

static void try_again(struct timer *timer)
{
    fleet_check(container_of(timer, struct slot, again)->service);
}

/* If every aggregator is lost or about to end, marks slot 0 as wanted, because new jobs and jobs
 * without lanes need an aggregator. */
static void want_one(struct service *s)
{
    if (s->fleet->leave_done)
        return;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link)
        if (a->state != AGGREGATOR_LOST && !a->is_stopping)
            return;
    if (s->fleet->slots_count > 0 && fleet_wanted(s) == 0) {
        s->fleet->slots[0].is_wanted = true;
        s->fleet->slots[0].open_count = s->fleet->slots[0].lanes_count;
    }
}

void fleet_check(struct service *s)
{
    want_one(s);
    for (size_t i = 0; i < s->fleet->slots_count && s->phase == SERVICE_UP; i++)
        check(&s->fleet->slots[i]);
}

struct slot *fleet_slot_of_grant(struct service *s, const char *grant)
{
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        if (s->fleet->slots[i].watch.fd >= 0 && strcmp(s->fleet->slots[i].grant, grant) == 0 &&
            *grant)
            return &s->fleet->slots[i];
    return NULL;
}

void fleet_joined(struct slot *slot)
{
    slot->has_joined = true;
    slot->start_failures = 0;
}

bool fleet_expects_more(const struct service *s)
{
    bool may_start = s->phase == SERVICE_UP && !s->fleet->leave_done;
    for (size_t i = 0; i < s->fleet->slots_count && may_start; i++)
        if (s->fleet->slots[i].is_wanted && !is_manned(&s->fleet->slots[i]))
            return true;
    return false;
}

/* --- starts and stops by load --- */

size_t fleet_wanted(const struct service *s)
{
    size_t count = 0;
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        count += s->fleet->slots[i].is_wanted;
    return count;
}

/* Replicas need at least 2 aggregators, because the replica holder of a piece must not be the
 * owner. */
size_t fleet_least(const struct service *s)
{
    size_t least = s->options->aggregators_min;
    list_for_each (node, &s->jobs)
        if (list_entry(node, struct job, link)->terms->durability == DURABILITY_REPLICA &&
            least < 2)
            least = 2;
    return least;
}

bool fleet_may_stop(const struct service *s) { return fleet_wanted(s) > fleet_least(s); }

void fleet_want_another(struct service *s)
{
    for (size_t i = 0; i < s->fleet->slots_count && fleet_wanted(s) < fleet_least(s); i++)
        if (fleet_may_start(&s->fleet->slots[i]))
            /* No lane opens: the aggregator only stores replicas until growth opens its lanes. */
            fleet_want(&s->fleet->slots[i], 0);
}

/* Returns whether the slot will soon have a new aggregator. A slot that pauses after too many
 * starts does not count. */
bool fleet_is_coming(const struct slot *slot)
{
    bool waits = !list_is_empty(&slot->again.link) && slot->watch.fd < 0 && !has_aggregator(slot);
    bool may_start = slot->is_wanted && !slot->service->fleet->leave_done;
    return may_start && !is_manned(slot) && !waits && !fleet_lacks_port(slot);
}

bool fleet_is_any_coming(const struct service *s)
{
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        if (fleet_is_coming(&s->fleet->slots[i]))
            return true;
    return false;
}

bool fleet_may_start(const struct slot *slot) { return !slot->is_wanted && !is_manned(slot); }

/* If the former aggregator of the slot is still ending, the next aggregator starts after the end of
 * the former. */
void fleet_want(struct slot *slot, size_t open_count)
{
    slot->is_wanted = true;
    slot->open_count = (uint32_t)open_count;
    fleet_check(slot->service);
}

void fleet_release(struct aggregator *a)
{
    struct service *s = a->service;
    if (a->slot == 0 || a->slot > s->fleet->slots_count)
        return;
    struct slot *slot = &s->fleet->slots[a->slot - 1];
    slot->is_wanted = slot->was_asked_to_go = false;
    slot->stop_by_ns = clock_now_ns() + HANDOVER_DEADLINE_NS;
    a->is_stopping = true;
    s->on->aggregator->is_stopping(a);
    check_leaving(slot);
}

void fleet_drain(struct service *s, bool now)
{
    for (size_t i = 0; i < s->fleet->slots_count; i++) {
        timer_stop(&s->fleet->slots[i].again);
        /* Without `now`, the caller requests aggregators that have joined to drain by a message, so
         * only processes that have not joined get a signal. */
        if (s->fleet->slots[i].watch.fd >= 0 && (now || !has_aggregator(&s->fleet->slots[i])))
            s->fleet->provisioner->ops->stop(s->fleet->provisioner, &s->fleet->slots[i].process,
                                             now);
    }
    if (now)
        farewells_end(s);
}

void fleet_end_starting(struct service *s)
{
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        if (s->fleet->slots[i].watch.fd >= 0 && !has_aggregator(&s->fleet->slots[i]))
            s->fleet->provisioner->ops->stop(s->fleet->provisioner, &s->fleet->slots[i].process,
                                             true);
}

bool fleet_is_gone(const struct service *s)
{
    for (size_t i = 0; i < s->fleet->slots_count; i++)
        if (s->fleet->slots[i].watch.fd >= 0)
            return false;
    return farewells_are_over(s);
}

/* Divides the cores into ranges of consecutive cores, as equal as possible. If there are fewer
 * cores than slots, slots share cores. */
static void share_cores(struct service *s, const struct cores *cores)
{
    size_t total = cores_count(cores), lanes_before = 0;
    for (size_t i = 0; i < s->fleet->slots_count; i++) {
        struct slot *slot = &s->fleet->slots[i];
        size_t first = i * total / s->fleet->slots_count,
               end = (i + 1) * total / s->fleet->slots_count;
        if (end == first)
            end = first + 1;
        cores_format(cores, first, end - first, slot->cores, sizeof slot->cores);
        if (s->options->data_port)
            slot->data_port = (uint16_t)(s->options->data_port + lanes_before);
        slot->lanes_count = (uint32_t)((end - first) * s->options->lanes_per_core);
        slot->open_count = slot->lanes_count;
        lanes_before += slot->lanes_count;
    }
    if (s->options->scales && s->options->lanes_min > lanes_before)
        log_warn("--lanes-min %u: the local aggregators have only %zu lane%s; start more "
                 "aggregators by hand (gradpool aggregator)",
                 s->options->lanes_min, lanes_before, lanes_before == 1 ? "" : "s");
    if (total < s->fleet->slots_count)
        log_warn(
            "%zu local aggregators share %zu core%s: lower --aggregators, or give more --cores",
            s->fleet->slots_count, total, total == 1 ? "" : "s");
}

static int check_ports(const struct service *s, const struct cores *cores, struct err *err)
{
    size_t first = s->options->data_port, slots = s->options->aggregators;
    size_t shares = cores_count(cores) > slots ? cores_count(cores) : slots;
    size_t lanes = shares * s->options->lanes_per_core;
    if (first + lanes - 1 <= UINT16_MAX || first == 0)
        return 0;
    return err_set(err, -EINVAL, "--data-port %zu: the ports of %zu lanes would end above %u",
                   first, lanes, UINT16_MAX);
}

int fleet_create(struct service *s)
{
    s->fleet = calloc(1, sizeof *s->fleet);
    if (!s->fleet)
        return -ENOMEM;
    s->fleet->service = s;
    /* order/leaving.c sets the callback before the first start of this timer. */
    timer_init(&s->fleet->leave_timer, NULL);
    list_init(&s->fleet->farewells);
    return 0;
}

int fleet_init(struct service *s, struct err *err)
{
    struct cores *cores;
    size_t count = s->options->aggregators;
    if (count == 0)
        return 0;
    int error = cores_create(s->options->cores, &cores, err);
    if (error < 0)
        return error;
    error = check_ports(s, cores, err);
    s->fleet->slots = error == 0 ? calloc(count, sizeof *s->fleet->slots) : NULL;
    s->fleet->slots_count = s->fleet->slots ? count : 0;
    for (size_t i = 0; i < s->fleet->slots_count; i++) {
        struct slot *slot = &s->fleet->slots[i];
        slot->service = s;
        slot->number = (uint32_t)i + 1;
        slot->is_wanted = true;
        slot->process.watch_fd = -1;
        slot->watch = (struct source){.fd = -1, .ready = ended};
        timer_init(&slot->again, try_again);
    }
    if (s->fleet->slots)
        share_cores(s, cores);
    cores_destroy(cores);
    return s->fleet->slots || error < 0
               ? error
               : err_set(err, -ENOMEM,
                         "gradpool serve has no memory for %zu aggregators; raise its memory limit",
                         count);
}

void fleet_destroy(struct service *s)
{
    if (!s->fleet)
        return;
    for (size_t i = 0; i < s->fleet->slots_count; i++) {
        timer_stop(&s->fleet->slots[i].again);
        if (s->fleet->slots[i].watch.fd >= 0) {
            loop_unwatch(s->loop, &s->fleet->slots[i].watch);
            close(s->fleet->slots[i].watch.fd);
        }
    }
    farewells_destroy(s);
    timer_stop(&s->fleet->leave_timer);
    free(s->fleet->slots);
    free(s->fleet);
}
