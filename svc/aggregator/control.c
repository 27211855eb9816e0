/* The control connection: joins the coordinator, joins again after the coordinator was away, and
 * receives requests. Accesses no data of lanes; serve.c calls the lanes. */
#include "svc/aggregator/copying/copying.h"
#include "svc/aggregator/internal.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/base/system/cgroup.h"
#include "svc/host/network.h"

#include <errno.h>
#include <unistd.h>

#define LEAVE_DEADLINE_NS NS_PER_S

/* Returns the memory that the lanes of a core may use: the memory of its NUMA node. If a cgroup has
 * a limit, each node has a part of it, in proportion to its memory. */
static uint64_t lane_memory_bytes(const struct aggregator *a, const struct core *core)
{
    uint64_t all = cores_memory_bytes(a->cores), node = core->numa_memory_bytes;
    struct cgroup_memory group = cgroup_memory("");
    if (group.limit_bytes == 0)
        return node;
    double part = all > 0 && node > 0 && node < all ? (double)node / (double)all : 1;
    uint64_t granted = (uint64_t)(part * (double)cgroup_memory_for_jobs(group.limit_bytes));
    return node > 0 && node < granted ? node : granted;
}

static Gradpool__Wire__LaneOffer offer_of(struct aggregator *a, size_t i)
{
    struct core core = cores_at(a->cores, i % cores_count(a->cores));
    char *ofi = (char *)lane_thread_ofi(a->lanes[i]);
    uint64_t named = a->options->network_bytes_per_s;
    return MESSAGE_PART(
        LaneOffer, lane_offer, .index = (uint32_t)i, .core = core.index, .pu = core.pu,
        .numa = core.numa, .memory_bytes = lane_memory_bytes(a, &core),
        .piece_bytes = (uint32_t)lane_piece_bytes(), .rank_bytes = (uint32_t)lane_rank_bytes(),
        .shm = (char *)lane_thread_shm(a->lanes[i]), .ofi = ofi,
        .network_bytes_per_s = named ? named : network_bytes_per_s(ofi));
}

static int set_lane_id(struct lane *lane, void *context)
{
    lane_set_id(lane, *(const uint32_t *)context);
    return 0;
}

static int take_welcome(struct aggregator *a, const envelope *reply, struct err *err)
{
    const Gradpool__Wire__AggregatorWelcome *welcome = reply->aggregator_welcome;
    if (reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_AGGREGATOR_WELCOME ||
        welcome->n_lanes != a->lanes_count)
        return err_set(err, -EPROTO,
                       "the coordinator did not answer the join of this aggregator; install one "
                       "version of gradpool on all hosts");
    bool is_new = a->number == 0;
    a->number = welcome->aggregator;
    for (size_t i = 0; i < a->lanes_count; i++) {
        a->lane_ids[i] = welcome->lanes[i];
        lane_thread_call(a->lanes[i], set_lane_id, &a->lane_ids[i]);
        /* the number of the lane is logged once, because earlier log lines name the lane by its
         * core */
        if (is_new)
            log_info("lane %u: %s", a->lane_ids[i], lane_thread_about(a->lanes[i]));
    }
    return 0;
}

static int ask_to_join(struct aggregator *a, uint64_t deadline_ns, struct err *err)
{
    Gradpool__Wire__LaneOffer offers[AGGREGATOR_LANES_MAX], *pointers[AGGREGATOR_LANES_MAX];
    Gradpool__Wire__PieceHeld **held = NULL;
    Gradpool__Wire__TableHeld **tables = NULL;
    size_t held_count = 0, tables_count = 0;
    envelope *reply = NULL;
    for (size_t i = 0; i < a->lanes_count; i++) {
        offers[i] = offer_of(a, i);
        pointers[i] = &offers[i];
    }
    int error = serve_held(a, &held, &held_count) ?: serve_held_tables(a, &tables, &tables_count);
    if (error < 0) {
        serve_held_free(held, held_count);
        return err_set(err, error, "no memory");
    }
    error = channel_call(
        a->channel,
        &MESSAGE(0, AGGREGATOR_JOIN, aggregator_join, .incarnation = a->incarnation,
                 .aggregator = a->number, .node = a->node, .pid = (uint32_t)getpid(),
                 .service = (char *)a->options->service, .grant = (char *)a->options->grant,
                 .n_lanes = a->lanes_count, .lanes = pointers, .held = held, .n_held = held_count,
                 .tables = tables, .n_tables = tables_count),
        deadline_ns, NULL, NULL, &reply, err);
    serve_held_free(held, held_count);
    serve_held_tables_free(tables, tables_count);
    if (error < 0)
        return error;
    error = take_welcome(a, reply, err);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

int control_join(struct aggregator *a, uint64_t deadline_ns, struct err *err)
{
    int fd = -1;
    uint64_t coordinator_incarnation;
    int error = endpoint_connect(&a->coordinator, deadline_ns, &fd, err);
    if (error < 0)
        return error;
    error = channel_create(fd, &a->channel);
    if (error < 0) {
        close(fd);
        return err_set(err, error, "%s", err_text(error));
    }
    if (a->has_key)
        /* if this call fails, channel_greet() reports the error */
        (void)channel_use_key(a->channel, &a->key);
    error = channel_greet(a->channel, GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR, "gradpool aggregator",
                          deadline_ns, &coordinator_incarnation, err)
                ?: ask_to_join(a, deadline_ns, err);
    if (error < 0) {
        channel_destroy(a->channel);
        a->channel = NULL;
        return error;
    }
    log_info("this aggregator joined as aggregator %u, with %zu lane%s", a->number, a->lanes_count,
             a->lanes_count == 1 ? "" : "s");
    keeping_joined(a);
    return serve_failures(a) ?: leaving_tell(a) ?: allow_ask(a, true) ?: copying_look(a, true);
}

/* Sends Goodbye and waits for the reply. A socket that is closed with unread bytes may discard
 * bytes that were sent, so the reply is read before the close. */
void control_leave(struct aggregator *a)
{
    envelope *reply = NULL;
    struct err err;
    if (!a->channel)
        return;
    if (channel_call(a->channel, &MESSAGE(0, AGGREGATOR_LEAVE, aggregator_leave),
                     clock_now_ns() + LEAVE_DEADLINE_NS, NULL, NULL, &reply, &err) < 0)
        log_info("this aggregator leaves without an answer of the coordinator: %s", err.text);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
}

int control_receive(struct aggregator *a)
{
    int error = channel_flush(a->channel);
    while (error >= 0 && !a->is_draining) {
        envelope *request = NULL;
        error = channel_receive(a->channel, &request);
        if (error < 0)
            break;
        error = serve_request(a, request);
        gradpool__wire__envelope__free_unpacked(request, NULL);
    }
    return error;
}
