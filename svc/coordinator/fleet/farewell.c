/* Local aggregators that end after a SIGTERM from outside the service. An end after this signal is
 * not a crash. The slot gets a new process at once, and the ending process is watched until its
 * end. Owns struct farewell (RULES.md: K94). */
#include "svc/coordinator/fleet/farewell.h"

#include "svc/base/log.h"
#include "svc/coordinator/order/leaving.h"

#include <stdlib.h>
#include <sys/epoll.h>

/* A process that is about to end. Its slot was freed, and may already have a new process. */
struct farewell {
    struct list link; /* entry in fleet.farewells */
    struct service *service;
    struct provisioned process;
    struct source watch;
};

static void farewell_free(struct farewell *f)
{
    loop_unwatch(f->service->loop, &f->watch);
    close(f->watch.fd);
    list_remove(&f->link);
    free(f);
}

static void ended(struct source *source, uint32_t events)
{
    struct farewell *f = container_of(source, struct farewell, watch);
    struct service *s = f->service;
    char how[64];
    s->fleet->provisioner->ops->collect(s->fleet->provisioner, &f->process, how, sizeof how);
    log_info("the local aggregator with pid %d has ended: %s", f->process.pid, how);
    farewell_free(f);
    fleet_check(s);
    s->on->aggregator->farewell_is_over(s);
}

/* Moves the process and its pidfd from the slot to a new farewell. */
static void take_process(struct slot *slot)
{
    struct service *s = slot->service;
    struct farewell *f = calloc(1, sizeof *f);
    if (!f)
        /* without memory for a farewell, the slot stays in use until this process has ended */
        return;
    *f = (struct farewell){
        .service = s, .process = slot->process, .watch = {.fd = slot->watch.fd, .ready = ended}};
    list_init(&f->link);
    list_append(&s->fleet->farewells, &f->link);
    loop_unwatch(s->loop, &slot->watch);
    loop_watch(s->loop, &f->watch, EPOLLIN);
    slot->watch.fd = -1;
    slot->process = (struct provisioned){.watch_fd = -1};
    /* A planned end does not count as a restart, so the time of the last start is forgotten. */
    if (slot->starts > 0)
        slot->starts_ns[(slot->starts - 1) % RESTARTS_MAX] = 0;
}

static size_t count_open(const struct aggregator *a)
{
    size_t count = 0;
    for (size_t i = 0; i < a->lanes_count; i++)
        count += a->lanes[i].use == LANE_OPEN || a->lanes[i].use == LANE_CLOSING;
    return count;
}

void fleet_leaves(struct aggregator *a)
{
    struct service *s = a->service;
    struct slot *slot =
        a->slot > 0 && a->slot <= s->fleet->slots_count ? &s->fleet->slots[a->slot - 1] : NULL;
    if (!slot)
        return fleet_check(s);
    size_t open = s->scaling->is_on ? count_open(a) : slot->lanes_count;
    slot->is_wanted &= open > 0 || !fleet_may_stop(s);
    slot->open_count = (uint32_t)open;
    a->former_slot = a->slot;
    a->slot = 0;
    timer_stop(&slot->again);
    if (slot->watch.fd >= 0)
        take_process(slot);
    fleet_check(s);
}

bool fleet_lacks_port(const struct slot *slot)
{
    list_for_each_entry (const struct aggregator, a, &slot->service->aggregators, link)
        if (a->former_slot == slot->number && a->state != AGGREGATOR_LOST)
            return slot->service->options->data_port > 0;
    return false;
}

void farewells_kill(struct service *s, const struct aggregator *a)
{
    list_for_each_entry (struct farewell, f, &s->fleet->farewells, link)
        if (f->process.pid == (int)a->pid && a->identity)
            s->fleet->provisioner->ops->stop(s->fleet->provisioner, &f->process, true);
}

void farewells_end(struct service *s)
{
    list_for_each_entry (struct farewell, f, &s->fleet->farewells, link)
        s->fleet->provisioner->ops->stop(s->fleet->provisioner, &f->process, true);
}

bool farewells_are_over(const struct service *s) { return list_is_empty(&s->fleet->farewells); }

void farewells_destroy(struct service *s)
{
    list_for_each_safe_entry (struct farewell, f, &s->fleet->farewells, link)
        farewell_free(f);
}
