/* Aggregator processes as the coordinator sees them: joining, rejoining after either side lost the
 * connection, and being declared lost. Owns struct aggregator and struct lane. A local one is lost
 * only when its process is dead: who could still write is not replaced (wire W5, K4). */
#include "svc/base/log.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define LANES_MAX 4096

const char *aggregator_name(const struct aggregator *a, char *buffer, size_t buffer_bytes)
{
    snprintf(buffer, buffer_bytes, "aggregator %u (%.64s, pid %u)", a->id, a->node, a->pid);
    return buffer;
}

const char *aggregator_state_name(const struct service *s, const struct aggregator *a)
{
    if (a->state == AGGREGATOR_UP && s->phase == SERVICE_DRAINING)
        return "draining";
    return a->state == AGGREGATOR_UP ? "up" : a->state == AGGREGATOR_AWAY ? "away" : "lost";
}

struct aggregator *aggregator_find(struct service *s, uint32_t id)
{
    list_for_each(node, &s->aggregators) {
        struct aggregator *a = list_entry(node, struct aggregator, link);
        if (a->id == id)
            return a;
    }
    return NULL;
}

struct lane *lane_find(struct service *s, uint32_t id)
{
    list_for_each(node, &s->aggregators) {
        struct aggregator *a = list_entry(node, struct aggregator, link);
        for (size_t i = 0; i < a->lanes_count; i++)
            if (a->lanes[i].id == id)
                return &a->lanes[i];
    }
    return NULL;
}

static void unwatch_process(struct aggregator *a)
{
    if (a->process.fd < 0)
        return;
    loop_unwatch(&a->service->loop, &a->process);
    close(a->process.fd);
    a->process.fd = -1;
}

void aggregator_destroy(struct aggregator *a)
{
    if (a->peer) {
        a->peer->aggregator = NULL;
        peer_break(a->peer);
    }
    calls_free(a);
    timer_stop(&a->timer);
    unwatch_process(a);
    list_remove(&a->link);
    for (size_t i = 0; i < a->lanes_count; i++) {
        free(a->lanes[i].shm);
        free(a->lanes[i].ofi);
    }
    if (a->stats)
        gradpool__wire__envelope__free_unpacked(a->stats, NULL);
    free(a->lanes);
    free(a->node);
    free(a);
}

static void forget(struct service *s, const struct aggregator *a)
{
    struct store_row row = {.table = STORE_AGGREGATOR, .aggregator.aggregator = a->id};
    struct err err;
    store_begin(s->store);
    store_erase(s->store, &row);
    if (store_commit(s->store, &err) < 0)
        log_error("%s (it will be found lost again after a restart)", err.text);
}

static void lost(struct aggregator *a)
{
    struct service *s = a->service;
    char name[128];
    unwatch_process(a);
    if (a->peer) {
        a->peer->aggregator = NULL;
        peer_break(a->peer);
        a->peer = NULL;
    }
    a->state = AGGREGATOR_LOST;
    log_write(s->phase == SERVICE_UP ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, "%s is gone",
              aggregator_name(a, name, sizeof name));
    calls_abandon(a, -ECONNRESET, "the aggregator is gone");
    forget(s, a);
    timer_start(&s->loop, &a->timer, clock_now_ns() + AGGREGATOR_SHOWN_NS);
    fleet_check(s);
    if (s->phase == SERVICE_UP)
        recovery_aggregator_lost(a);
    service_check_drained(s);
}

static void process_ended(struct source *source, uint32_t events)
{
    lost(container_of(source, struct aggregator, process));
}

static void expired(struct timer *timer)
{
    struct aggregator *a = container_of(timer, struct aggregator, timer);
    char name[128];
    aggregator_name(a, name, sizeof name);
    if (a->state == AGGREGATOR_LOST)
        return aggregator_destroy(a);
    if (a->process.fd < 0)
        return lost(a);
    log_error("%s runs, but has left its control connection: killing it", name);
    process_kill(a->process.fd, SIGKILL); /* process_ended() follows */
}

void aggregator_away(struct aggregator *a, uint64_t grace_ns)
{
    if (a->state == AGGREGATOR_LOST)
        return;
    char name[128];
    a->state = AGGREGATOR_AWAY;
    calls_abandon(a, -ECONNRESET, "the aggregator left its control connection");
    log_info("%s is away", aggregator_name(a, name, sizeof name));
    bool remote = a->process.fd < 0;
    timer_start(&a->service->loop, &a->timer,
                clock_now_ns() + (remote && a->service->phase != SERVICE_UP ? 0 : grace_ns));
}

static void watch_process(struct aggregator *a, uint32_t pid, uint64_t identity)
{
    int fd;
    if (process_open(pid, identity, &fd) < 0)
        return;
    a->process.fd = fd;
    if (loop_watch(&a->service->loop, &a->process, EPOLLIN) < 0)
        unwatch_process(a);
}

/* --- joining --- */

static struct aggregator *create(struct service *s, uint32_t id, const char *node,
                                 size_t lanes_count)
{
    struct aggregator *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->service = s;
    a->id = id;
    a->process = (struct source){.fd = -1, .ready = process_ended};
    list_init(&a->link);
    list_init(&a->calls);
    timer_init(&a->timer, expired);
    a->node = strdup(node);
    a->lanes = calloc(lanes_count ? lanes_count : 1, sizeof *a->lanes);
    if (!a->node || !a->lanes) {
        aggregator_destroy(a);
        return NULL;
    }
    return a;
}

static int take_offer(struct aggregator *a, uint32_t id, const WIRE(LaneOffer) *offer)
{
    struct lane *lane = &a->lanes[a->lanes_count];
    *lane = (struct lane){.id = id, .index = offer->index, .core = offer->core, .pu = offer->pu,
                          .numa = offer->numa, .memory_bytes = offer->memory_bytes,
                          .aggregator = a, .shm = strdup(offer->shm), .ofi = strdup(offer->ofi)};
    a->lanes_count++;
    return lane->shm && lane->ofi ? 0 : -ENOMEM;
}

static void put(struct service *s, const struct aggregator *a)
{
    struct store_row row = {.table = STORE_AGGREGATOR};
    row.aggregator = (struct store_aggregator){.aggregator = a->id, .incarnation = a->incarnation,
        .identity = a->identity, .pid = a->pid, .slot = a->slot, .node = a->node};
    store_put(s->store, &row);
    for (size_t i = 0; i < a->lanes_count; i++) {
        const struct lane *lane = &a->lanes[i];
        row.table = STORE_LANE;
        row.lane = (struct store_lane){.lane = lane->id, .aggregator = a->id, .index = lane->index,
            .core = lane->core, .pu = lane->pu, .numa = lane->numa,
            .memory_bytes = lane->memory_bytes, .shm = lane->shm, .ofi = lane->ofi};
        store_put(s->store, &row);
    }
}

/* On a Unix socket the kernel says which process it is; what the message says is for people. */
static void identify(struct aggregator *a, struct peer *p, uint32_t told_pid)
{
    int pid;
    uint32_t uid;
    a->pid = told_pid;
    if (channel_credentials(p->channel, &pid, &uid) == 0 && pid > 0) {
        a->pid = (uint32_t)pid;
        a->identity = process_identity(a->pid);
    }
}

static struct aggregator *create_from_join(struct peer *p, const WIRE(AggregatorJoin) *join,
                                           uint32_t slot)
{
    struct service *s = p->service;
    struct aggregator *a = create(s, s->numbers.next_aggregator, join->node, join->n_lanes);
    if (!a)
        return NULL;
    for (size_t i = 0; i < join->n_lanes; i++) {
        if (take_offer(a, s->numbers.next_lane + (uint32_t)i, join->lanes[i]) < 0) {
            aggregator_destroy(a);
            return NULL;
        }
    }
    a->incarnation = join->incarnation;
    a->slot = slot;
    identify(a, p, join->pid);
    return a;
}

static void attach(struct aggregator *a, struct peer *p)
{
    if (a->peer && a->peer != p) {
        a->peer->aggregator = NULL;
        peer_break(a->peer);
        calls_abandon(a, -ECONNRESET, "the aggregator came back on another connection");
    }
    a->peer = p;
    p->aggregator = a;
    a->state = AGGREGATOR_UP;
    timer_stop(&a->timer);
}

static void welcome(struct aggregator *a, uint64_t request)
{
    WIRE(AggregatorWelcome) reply = GRADPOOL__WIRE__AGGREGATOR_WELCOME__INIT;
    uint32_t *lanes = calloc(a->lanes_count, sizeof *lanes);
    if (!lanes)
        return peer_break(a->peer);
    for (size_t i = 0; i < a->lanes_count; i++)
        lanes[i] = a->lanes[i].id;
    reply.aggregator = a->id;
    reply.lanes = lanes;
    reply.n_lanes = a->lanes_count;
    envelope e = ENVELOPE_INIT;
    e.id = request;
    e.body_case = BODY(AGGREGATOR_WELCOME);
    e.aggregator_welcome = &reply;
    peer_send(a->peer, &e);
    free(lanes);
}

/* The local one that this replaces needs not be shown any longer. */
static void drop_lost_of_slot(struct service *s, uint32_t slot)
{
    list_for_each_safe(node, &s->aggregators) {
        struct aggregator *a = list_entry(node, struct aggregator, link);
        if (slot && a->slot == slot && a->state == AGGREGATOR_LOST)
            timer_start(&s->loop, &a->timer, 0);
    }
}

static void join_new(struct peer *p, uint64_t request, const WIRE(AggregatorJoin) *join,
                     uint32_t slot)
{
    struct service *s = p->service;
    struct err err;
    struct aggregator *a = create_from_join(p, join, slot);
    if (!a)
        return peer_fail(p, request, -ENOMEM, "gradpool serve is out of memory");
    struct store_service before = s->numbers;
    s->numbers.next_aggregator++;
    s->numbers.next_lane += (uint32_t)join->n_lanes;
    store_begin(s->store);
    service_put_numbers(s);
    put(s, a);
    if (store_commit(s->store, &err) < 0) {
        s->numbers = before;
        aggregator_destroy(a);
        return peer_fail(p, request, err.code, "%s", err.text);
    }
    char name[128];
    list_append(&s->aggregators, &a->link);
    watch_process(a, a->pid, a->identity);
    attach(a, p);
    log_info("%s joined with %zu lanes", aggregator_name(a, name, sizeof name), a->lanes_count);
    welcome(a, request);
    drop_lost_of_slot(s, slot);
    recovery_place_stranded(s);
}

static bool same_lanes(const struct aggregator *a, const WIRE(AggregatorJoin) *join)
{
    if (a->lanes_count != join->n_lanes)
        return false;
    for (size_t i = 0; i < a->lanes_count; i++)
        if (a->lanes[i].index != join->lanes[i]->index ||
            strcmp(a->lanes[i].shm, join->lanes[i]->shm) != 0 ||
            strcmp(a->lanes[i].ofi, join->lanes[i]->ofi) != 0)
            return false;
    return true;
}

static void rejoin(struct aggregator *a, struct peer *p, uint64_t request,
                   const WIRE(AggregatorJoin) *join)
{
    char name[128];
    if (!same_lanes(a, join))
        return peer_fail(p, request, -EINVAL, "%s came back with other lanes than it had",
                         aggregator_name(a, name, sizeof name));
    attach(a, p);
    log_info("%s is back", aggregator_name(a, name, sizeof name));
    welcome(a, request);
    recovery_reconcile(a, join);
    fleet_check(p->service);
}

static struct aggregator *find_joined(struct service *s, const WIRE(AggregatorJoin) *join)
{
    list_for_each(node, &s->aggregators) {
        struct aggregator *a = list_entry(node, struct aggregator, link);
        if (a->incarnation == join->incarnation && a->state != AGGREGATOR_LOST &&
            (join->aggregator == 0 || join->aggregator == a->id))
            return a;
    }
    return NULL;
}

static bool join_is_valid(struct peer *p, uint64_t request, const WIRE(AggregatorJoin) *join)
{
    const char *wrong = NULL;
    if (p->service->phase != SERVICE_UP)
        return peer_fail(p, request, -ESHUTDOWN, "gradpool serve is stopping"), false;
    if (p->aggregator)
        wrong = "this connection has joined already";
    else if (join->n_lanes < 1 || join->n_lanes > LANES_MAX)
        wrong = "it offers no lanes, or more than 4096";
    else if (strlen(join->node) > HOST_NAME_MAX)
        wrong = "its node name is too long";
    if (wrong)
        peer_fail(p, request, -EINVAL, "aggregator refused: %s", wrong);
    return !wrong;
}

void aggregator_handle_join(struct peer *p, const envelope *request)
{
    struct service *s = p->service;
    const WIRE(AggregatorJoin) *join = request->aggregator_join;
    if (!join_is_valid(p, request->id, join))
        return;
    struct aggregator *a = find_joined(s, join);
    if (a)
        return rejoin(a, p, request->id, join);
    if (join->aggregator != 0)
        return peer_fail(p, request->id, -ESTALE, "aggregator %u is not known here any more: it "
                         "was away too long and its work has been given to others; start it anew",
                         join->aggregator);
    struct slot *slot = fleet_slot_of_grant(s, join->grant);
    if (*join->grant && !slot)
        return peer_fail(p, request->id, -EPERM, "the grant is not of this service");
    join_new(p, request->id, join, slot ? slot->number : 0);
}

/* --- statistics, restore --- */

void aggregator_handle_stats(struct service *s, struct aggregator *a, const envelope *reply)
{
    /* The reply is the receiver's: a copy is kept through its packed form. */
    size_t bytes = gradpool__wire__envelope__get_packed_size(reply);
    uint8_t *packed = malloc(bytes);
    if (!packed)
        return;
    gradpool__wire__envelope__pack(reply, packed);
    envelope *copy = gradpool__wire__envelope__unpack(NULL, bytes, packed);
    free(packed);
    if (!copy)
        return;
    if (a->stats)
        gradpool__wire__envelope__free_unpacked(a->stats, NULL);
    a->stats = copy;
}

int aggregator_restore(struct service *s, const struct store_aggregator *row)
{
    struct aggregator *a = create(s, row->aggregator, row->node, LANES_MAX);
    if (!a)
        return -ENOMEM;
    a->incarnation = row->incarnation;
    a->identity = row->identity;
    a->pid = row->pid;
    a->slot = row->slot;
    list_append(&s->aggregators, &a->link);
    watch_process(a, a->pid, a->identity);
    /* A local one that has died meanwhile need not be waited for. */
    bool dead = a->identity && a->process.fd < 0;
    aggregator_away(a, dead ? 0 : a->identity ? AGGREGATOR_LOCAL_AWAY_NS
                                              : AGGREGATOR_REMOTE_AWAY_NS);
    return 0;
}

int lane_restore(struct service *s, const struct store_lane *row)
{
    struct aggregator *a = aggregator_find(s, row->aggregator);
    if (!a || a->lanes_count == LANES_MAX)
        return -EBADMSG;
    WIRE(LaneOffer) offer = GRADPOOL__WIRE__LANE_OFFER__INIT;
    offer.index = row->index;
    offer.core = row->core;
    offer.pu = row->pu;
    offer.numa = row->numa;
    offer.memory_bytes = row->memory_bytes;
    offer.shm = (char *)row->shm;
    offer.ofi = (char *)row->ofi;
    return take_offer(a, row->lane, &offer);
}
