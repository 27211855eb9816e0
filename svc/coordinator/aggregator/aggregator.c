/* States of aggregator processes: up, away (disconnected), lost. Owns struct aggregator and struct
 * lane. A local aggregator becomes lost only after its process has ended: a live process may still
 * write to workers' memory, so no other process may replace the aggregator (wire W5, K4). */
#include "svc/coordinator/aggregator/aggregator.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/aggregator/ping.h"
#include "svc/coordinator/aggregator/process.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/order/leaving.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/kept.h"
#include "svc/coordinator/snapshot/snapshot.h"
#include "svc/coordinator/view/display.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define LANES_MAX 4096
#define SHOWN_NS (60 * NS_PER_S) /* time for which `status` shows a lost aggregator */

const char *aggregator_state_name(const struct aggregator *a)
{
    if (a->state == AGGREGATOR_UP && (a->is_stopping || a->service->phase == SERVICE_DRAINING))
        return "draining";
    if (a->state == AGGREGATOR_UP && liveness_silent_ns(a) > 0)
        return "silent";
    return a->state == AGGREGATOR_UP ? "up" : a->state == AGGREGATOR_AWAY ? "away" : "lost";
}

static void unwatch_process(struct aggregator *a)
{
    if (a->process.fd < 0)
        return;
    loop_unwatch(a->service->loop, &a->process);
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
    a->service->on->aggregator->ends(a);
    unwatch_process(a);
    list_remove(&a->link);
    for (size_t i = 0; i < a->lanes_count; i++) {
        free(a->lanes[i].shm);
        free(a->lanes[i].ofi);
    }
    stats_forget(a);
    free(a->lanes);
    free(a->node);
    free(a);
}

static void forget(struct service *s, const struct aggregator *a)
{
    struct store_row row = {.table = STORE_AGGREGATOR, .aggregator.aggregator = a->id};
    struct err err;
    if (store_erase_one(s->store, &row, &err) < 0)
        log_error("%s; after a restart the coordinator will find this aggregator lost again",
                  err.text);
}

static void lost(struct aggregator *a)
{
    struct service *s = a->service;
    unwatch_process(a);
    if (a->peer) {
        a->peer->aggregator = NULL;
        peer_break(a->peer);
        a->peer = NULL;
    }
    a->state = AGGREGATOR_LOST;
    log_write(s->phase == SERVICE_UP && !a->is_stopping ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
              "%s has ended, with its %zu lane%s", AGGREGATOR_NAME(a), a->lanes_count,
              a->lanes_count == 1 ? "" : "s");
    calls_abandon(a, -ECONNRESET, "the aggregator is gone");
    forget(s, a);
    timer_start(s->loop, &a->timer, a->is_stopping ? 0 : clock_now_ns() + SHOWN_NS);
    s->on->aggregator->is_lost(a);
}

/* Changes the aggregator's state to LOST although its process may still run. A process that this
 * coordinator started is killed. */
static void lost_alive(struct aggregator *a)
{
    a->service->on->aggregator->is_cut_off(a);
    lost(a);
}

/* Called when an aggregator has sent its last message, Goodbye. If the process runs on this host,
 * the aggregator is lost when the pidfd reports the end of the process (K4). Any other aggregator
 * is lost now. */
void aggregator_left(struct aggregator *a)
{
    log_info("%s has no tasks left, and leaves", AGGREGATOR_NAME(a));
    if (a->process.fd < 0)
        lost(a);
}

void aggregator_drain(struct aggregator *a) { aggregator_drain_losing(a, ""); }

void aggregator_drain_losing(struct aggregator *a, const char *loses)
{
    if (a->peer)
        peer_reply(a->peer, 0, DRAIN_REQUEST, drain_request, .loses = (char *)loses);
    else if (a->state == AGGREGATOR_AWAY && a->process.fd >= 0)
        process_kill(a->process.fd, SIGTERM);
    else if (a->state == AGGREGATOR_AWAY)
        /* The process ends without a request from this coordinator, so the aggregator is lost
         * now. */
        timer_start(a->service->loop, &a->timer, 0);
}

void aggregator_hung(struct aggregator *a)
{
    bool is_local = a->process.fd >= 0;
    log_error("%s has sent no answer for %.1f s (--aggregator-timeout): %s", AGGREGATOR_NAME(a),
              (double)liveness_silent_ns(a) / NS_PER_S,
              is_local ? "the service kills the process and starts another one"
                       : "the aggregator counts as lost; see its host");
    if (!is_local)
        return lost_alive(a);
    process_kill(a->process.fd, SIGKILL); /* the pidfd reports the end; then process_ended() runs */
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
        return lost_alive(a);
    log_error("%s runs, but has not renewed its control connection: the service kills the process",
              name);
    process_kill(a->process.fd, SIGKILL); /* the pidfd reports the end; then process_ended() runs */
}

/* Returns how long the coordinator waits for a new connection. Half of the timeout is enough for a
 * remote aggregator: a live aggregator reconnects at once, so the process of an aggregator that
 * does not reconnect has nearly always ended. */
uint64_t aggregator_grace_ns(const struct aggregator *a)
{
    uint64_t timeout_ns = a->service->options->aggregator_timeout_ns;
    if (a->process.fd >= 0)
        return AGGREGATOR_LOCAL_AWAY_NS;
    return timeout_ns ? timeout_ns / 2 : AGGREGATOR_REMOTE_AWAY_NS;
}

void aggregator_away(struct aggregator *a, uint64_t grace_ns)
{
    if (a->state == AGGREGATOR_LOST)
        return;
    a->state = AGGREGATOR_AWAY;
    calls_abandon(a, -ECONNRESET, "the aggregator closed its control connection");
    a->service->on->aggregator->is_away(a);
    log_info("%s has lost its control connection", AGGREGATOR_NAME(a));
    bool remote = a->process.fd < 0;
    timer_start(a->service->loop, &a->timer,
                clock_now_ns() + (remote && a->service->phase != SERVICE_UP ? 0 : grace_ns));
}

void aggregator_watch(struct aggregator *a)
{
    int fd;
    if (process_open(a->pid, a->identity, &fd) < 0)
        return;
    a->process.fd = fd;
    if (loop_watch(a->service->loop, &a->process, EPOLLIN) < 0)
        unwatch_process(a);
}

struct aggregator *aggregator_create(struct service *s, uint32_t id, const char *node,
                                     size_t lanes_max)
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
    a->lanes = calloc(lanes_max, sizeof *a->lanes);
    if (!a->node || !a->lanes) {
        aggregator_destroy(a);
        return NULL;
    }
    return a;
}

int aggregator_add_lane(struct aggregator *a, uint32_t id, const WIRE(LaneOffer) * offer)
{
    struct lane *lane = &a->lanes[a->lanes_count];
    *lane = (struct lane){.id = id,
                          .index = offer->index,
                          .core = offer->core,
                          .pu = offer->pu,
                          .numa = offer->numa,
                          .memory_bytes = offer->memory_bytes,
                          .piece_bytes = offer->piece_bytes,
                          .rank_bytes = offer->rank_bytes,
                          .network_bytes_per_s = offer->network_bytes_per_s,
                          .aggregator = a,
                          .shm = strdup(offer->shm),
                          .ofi = strdup(offer->ofi)};
    a->lanes_count++;
    return lane->shm && lane->ofi ? 0 : -ENOMEM;
}

void aggregator_put(const struct aggregator *a)
{
    struct store *store = a->service->store;
    struct store_row row = {.table = STORE_AGGREGATOR};
    row.aggregator = (struct store_aggregator){.aggregator = a->id,
                                               .incarnation = a->incarnation,
                                               .identity = a->identity,
                                               .pid = a->pid,
                                               .slot = a->slot,
                                               .node = a->node};
    store_put(store, &row);
    for (size_t i = 0; i < a->lanes_count; i++) {
        const struct lane *lane = &a->lanes[i];
        row.table = STORE_LANE;
        row.lane = (struct store_lane){.lane = lane->id,
                                       .aggregator = a->id,
                                       .index = lane->index,
                                       .core = lane->core,
                                       .pu = lane->pu,
                                       .numa = lane->numa,
                                       .memory_bytes = lane->memory_bytes,
                                       .shm = lane->shm,
                                       .ofi = lane->ofi};
        store_put(store, &row);
    }
}

void aggregator_attach(struct aggregator *a, struct peer *p)
{
    if (a->peer && a->peer != p) {
        a->peer->aggregator = NULL;
        peer_break(a->peer);
        a->peer = NULL;
        a->state = AGGREGATOR_AWAY;
        calls_abandon(a, -ECONNRESET, "the aggregator has opened another connection");
        a->service->on->aggregator->is_away(a);
    }
    a->peer = p;
    p->aggregator = a;
    a->state = AGGREGATOR_UP;
    a->pinged_ns = 0;
    a->periods_silent = 0;
    a->silent_ns = 0;
    liveness_joined(a);
    a->service->on->service->view_has_changed(a->service);
    timer_stop(&a->timer);
}

int aggregator_restore(struct service *s, const struct store_aggregator *row)
{
    struct aggregator *a = aggregator_create(s, row->aggregator, row->node, LANES_MAX);
    if (!a)
        return -ENOMEM;
    a->incarnation = row->incarnation;
    a->identity = row->identity;
    a->pid = row->pid;
    a->slot = row->slot;
    list_append(&s->aggregators, &a->link);
    aggregator_watch(a);
    /* A local aggregator whose process ended while no coordinator ran counts as lost at once. */
    bool dead = a->identity && a->process.fd < 0 && process_has_ended(a->pid, a->identity);
    aggregator_away(a, dead          ? 0
                       : a->identity ? AGGREGATOR_LOCAL_AWAY_NS
                                     : AGGREGATOR_REMOTE_AWAY_NS);
    return 0;
}

int lane_restore(struct service *s, const struct store_lane *row)
{
    struct aggregator *a = aggregator_find(s, row->aggregator);
    if (!a || a->lanes_count == LANES_MAX)
        return -EBADMSG;
    return aggregator_add_lane(a, row->lane,
                               &MESSAGE_PART(LaneOffer, lane_offer, .index = row->index,
                                             .core = row->core, .pu = row->pu, .numa = row->numa,
                                             .memory_bytes = row->memory_bytes,
                                             .shm = (char *)row->shm, .ofi = (char *)row->ofi));
}
