/* Aggregators join, reconnect, and leave. An aggregator reconnects after a lost connection and
 * after a restart of the coordinator. */
#include "svc/coordinator/fleet/join.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/base/system/process.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/order/leaving.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/kept.h"
#include "svc/coordinator/store/numbers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OFFERS_MAX 4096

/* Sets the process number (pid) and the identity of the aggregator. On a Unix socket the kernel
 * supplies the pid. On other sockets the pid in the message is used, for display only. */
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

static struct aggregator *create_from_join(struct peer *p, const WIRE(AggregatorJoin) * join,
                                           uint32_t slot)
{
    struct service *s = p->service;
    struct aggregator *a =
        aggregator_create(s, s->numbers->next_aggregator, join->node, join->n_lanes);
    if (!a)
        return NULL;
    for (size_t i = 0; i < join->n_lanes; i++) {
        if (aggregator_add_lane(a, s->numbers->next_lane + (uint32_t)i, join->lanes[i]) < 0) {
            aggregator_destroy(a);
            return NULL;
        }
    }
    a->incarnation = join->incarnation;
    a->slot = slot;
    identify(a, p, join->pid);
    return a;
}

static void welcome(struct aggregator *a, uint64_t request)
{
    _cleanup_free_ uint32_t *lanes = calloc(a->lanes_count, sizeof *lanes);
    if (!lanes)
        return peer_break(a->peer);
    for (size_t i = 0; i < a->lanes_count; i++)
        lanes[i] = a->lanes[i].id;
    peer_reply(a->peer, request, AGGREGATOR_WELCOME, aggregator_welcome, .aggregator = a->id,
               .lanes = lanes, .n_lanes = a->lanes_count);
}

/* A new aggregator uses the slot of lost aggregators. Frees these, so that `status` shows one row
 * for each slot. */
static void drop_lost_of_slot(struct service *s, uint32_t slot)
{
    list_for_each_safe_entry (struct aggregator, a, &s->aggregators, link)
        if (slot && a->slot == slot && a->state == AGGREGATOR_LOST)
            timer_start(s->loop, &a->timer, 0);
}

static void join_new(struct peer *p, uint64_t request, const WIRE(AggregatorJoin) * join,
                     struct slot *slot)
{
    struct service *s = p->service;
    struct err err;
    struct aggregator *a = create_from_join(p, join, slot ? slot->number : 0);
    if (!a)
        return peer_fail_memory(p, request);
    struct store_service before = *s->numbers;
    s->numbers->next_aggregator++;
    s->numbers->next_lane += (uint32_t)join->n_lanes;
    store_begin(s->store);
    service_put_numbers(s);
    aggregator_put(a);
    if (store_commit(s->store, &err) < 0) {
        *s->numbers = before;
        aggregator_destroy(a);
        return peer_fail(p, request, err.code, "%s", err.text);
    }
    list_append(&s->aggregators, &a->link);
    aggregator_watch(a);
    aggregator_attach(a, p);
    log_info("%s joined with %zu lane%s%s", AGGREGATOR_NAME(a), a->lanes_count,
             a->lanes_count == 1 ? "" : "s", slot ? " (--aggregators)" : " (gradpool aggregator)");
    if (slot)
        fleet_joined(slot);
    welcome(a, request);
    drop_lost_of_slot(s, a->slot);
    s->on->aggregator->joined(a, slot);
}

static bool same_lanes(const struct aggregator *a, const WIRE(AggregatorJoin) * join)
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

/* Sets the memory costs of pieces and ranks from the join message. The costs depend on the version
 * of the program, so they are not stored. */
static void take_costs(struct aggregator *a, const WIRE(AggregatorJoin) * join)
{
    for (size_t i = 0; i < a->lanes_count; i++) {
        a->lanes[i].piece_bytes = join->lanes[i]->piece_bytes;
        a->lanes[i].rank_bytes = join->lanes[i]->rank_bytes;
        a->lanes[i].network_bytes_per_s = join->lanes[i]->network_bytes_per_s;
    }
}

static void rejoin(struct aggregator *a, struct peer *p, uint64_t request,
                   const WIRE(AggregatorJoin) * join)
{
    if (!same_lanes(a, join))
        return peer_fail(
            p, request, -EINVAL,
            "%s has connected again with other lanes than before; start the aggregator with the "
            "same options, or as a new one",
            AGGREGATOR_NAME(a));
    take_costs(a, join);
    aggregator_attach(a, p);
    log_info("%s is connected again", AGGREGATOR_NAME(a));
    welcome(a, request);
    p->service->on->aggregator->is_back(a, join);
}

static struct aggregator *find_joined(struct service *s, const WIRE(AggregatorJoin) * join)
{
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        if (a->incarnation == join->incarnation && a->state != AGGREGATOR_LOST &&
            (join->aggregator == 0 || join->aggregator == a->id))
            return a;
    return NULL;
}

static bool join_is_valid(struct peer *p, uint64_t request, const WIRE(AggregatorJoin) * join)
{
    const char *wrong = NULL;
    if (p->service->phase != SERVICE_UP)
        return peer_fail(p, request, -ESHUTDOWN, "gradpool serve is stopping"), false;
    if (p->aggregator)
        wrong = "this connection has joined already";
    else if (join->n_lanes < 1 || join->n_lanes > OFFERS_MAX)
        wrong = "the aggregator offers no lanes, or too many";
    else if (!text_is_node(join->node))
        wrong = "the aggregator's host name has other characters than a host name may have; rename "
                "the host";
    if (wrong)
        peer_fail(p, request, -EINVAL, "aggregator refused: %s", wrong);
    return !wrong;
}

/* Returns whether the aggregator was started for this service. If not, a failure was sent: this
 * service may have got the former port of another service, and must not use the other service's
 * aggregators. */
static bool is_for_this_service(struct peer *p, uint64_t request, const char *named)
{
    const char *name = p->service->options->name ? p->service->options->name : "";
    if (strcmp(named, name) == 0)
        return true;
    if (!*name)
        peer_fail(
            p, request, -EPERM,
            "this service has no name, and the aggregator is for service %.64s: check --join, "
            "or leave --service out",
            named);
    else
        peer_fail(p, request, -EPERM,
                  "this is service %.64s, and the aggregator is for %s%.64s: check --join, or give "
                  "--service %.64s",
                  name, *named ? "service " : "one without a name", named, name);
    return false;
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
    if (!is_for_this_service(p, request->id, join->service))
        return;
    if (join->aggregator != 0)
        return peer_fail(p, request->id, -ESTALE,
                         "aggregator %u counts as lost: its connection had ended for too long, and "
                         "its tasks have other lanes; start the aggregator anew",
                         join->aggregator);
    struct slot *slot = fleet_slot_of_grant(s, join->grant);
    if (*join->grant && !slot)
        return peer_fail(
            p, request->id, -EPERM,
            "the aggregator's grant is not of this service; start the aggregator anew");
    join_new(p, request->id, join, slot);
}

void aggregator_handle_leave(struct peer *p, const envelope *request)
{
    peer_reply_done(p, request->id);
    if (p->aggregator)
        aggregator_left(p->aggregator);
}
