/* Requests of `gradpool move` and `gradpool drain`: checks permission, finds the named objects, and
 * withholds lanes. order.c carries out the orders. */
#include "svc/coordinator/order/request.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/fleet/open_lanes.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/order/order.h"
#include "svc/coordinator/recovery/recovery.h"

#include <errno.h>
#include <string.h>

/* Orders affect lanes of all tenants, so only operators may send them (K11). */
static bool is_allowed(struct peer *p, const envelope *request)
{
    if (!peer_is_operator(p, request->id, "moving tasks"))
        return false;
    if (p->service->phase != SERVICE_UP)
        peer_fail(p, request->id, -ESHUTDOWN, "gradpool serve is stopping");
    return p->service->phase == SERVICE_UP;
}

/* Creates the order. Returns NULL if memory is missing; the failure was then sent to the peer. */
static struct order *create(struct peer *p, uint64_t request)
{
    struct order *order = order_create(p->service);
    if (!order)
        peer_fail_memory(p, request);
    return order;
}

/* --- move --- */

static bool has_task(const struct job *job, uint32_t task)
{
    job_each_piece (piece, tensor, job)
        if (piece->task == task)
            return true;
    return false;
}

/* Returns whether the request names this job. The tenant `-' is the local tenant. */
static bool is_meant(const struct job *job, const WIRE(MoveRequest) * wanted)
{
    const char *tenant = strcmp(wanted->tenant, "-") == 0 ? "" : wanted->tenant;
    if (*wanted->tenant && strcmp(job->tenant->key.tenant, tenant) != 0)
        return false;
    if (wanted->task == 0 && strcmp(job->name, wanted->job) != 0)
        return false;
    return wanted->task == 0 || has_task(job, wanted->task);
}

/* Returns whether the requested name is the number of a task and also the name of a job. Such a
 * request is refused, because otherwise a task of another tenant could move by mistake. The error
 * shows how to name the task or the job. */
static bool may_be_either(const struct service *s, const WIRE(MoveRequest) * wanted)
{
    if (wanted->task == 0)
        return false;
    list_for_each (node, &s->jobs) {
        if (strcmp(list_entry(node, struct job, link)->name, wanted->job) == 0)
            return true;
    }
    return false;
}

static const struct job *find_meant(struct peer *p, uint64_t request,
                                    const WIRE(MoveRequest) * wanted)
{
    const struct job *meant = NULL;
    list_for_each_entry (const struct job, job, &p->service->jobs, link) {
        if (!is_meant(job, wanted))
            continue;
        if (meant) {
            peer_fail(p, request, -EINVAL,
                      "more than one tenant has a job %.127s: name the tenant with --tenant",
                      wanted->job);
            return NULL;
        }
        meant = job;
    }
    if (!meant && wanted->task)
        peer_fail(p, request, -ENOENT, "there is no task %u; see gradpool explain JOB",
                  wanted->task);
    else if (!meant)
        peer_fail(p, request, -ENOENT, "there is no job %.127s; see gradpool jobs", wanted->job);
    return meant;
}

/* Returns whether tasks may move to the lane. A parked lane opens for an order. */
static bool lane_is_fit(struct peer *p, uint64_t request, uint32_t id)
{
    const struct lane *lane = lane_find(p->service, id);
    if (!lane || lane->aggregator->state == AGGREGATOR_LOST)
        peer_fail(p, request, -ENOENT, "there is no lane %u; see gradpool status", id);
    else if (lane->use == LANE_WITHHELD)
        peer_fail(p, request, -EINVAL,
                  "lane %u is drained: end the drain first (gradpool drain --undo)", id);
    else if (lane->use == LANE_CLOSING)
        peer_fail(p, request, -EBUSY, "lane %u is being emptied: choose another lane, or try again",
                  id);
    else if (lane->use == LANE_PARKED && lanes_room(p->service) == 0)
        peer_fail(p, request, -ENOSPC,
                  "lane %u is parked, and the maximum number of lanes is open: raise --lanes-max",
                  id);
    else
        return true;
    return false;
}

/* Returns the table to which the task belongs as a shard. If the request has no number of a task,
 * returns the first table of the named job. Failed tables are skipped. NULL: there is no such
 * table. */
static const struct job_table *find_table(const struct service *s, const WIRE(MoveRequest) * wanted)
{
    list_for_each_entry (const struct job, job, &s->jobs, link) {
        if (wanted->task == 0 && !is_meant(job, wanted))
            continue;
        job_each_table(table, job)
        {
            if (table->failure)
                continue;
            if (wanted->task == 0)
                return table;
            table_each_shard(shard, table) if (shard->task == wanted->task) return table;
        }
    }
    return NULL;
}

/* Refuses to move shards, because lanes cannot hand over the rows of tables yet. Tasks of tensors
 * of the same job may move. */
static bool move_is_allowed(struct peer *p, const envelope *request)
{
    const WIRE(MoveRequest) *wanted = request->move_request;
    const struct job_table *table = find_table(p->service, wanted);
    if (!table)
        return true;
    if (wanted->task)
        peer_fail(p, request->id, -EOPNOTSUPP,
                  "task %u is a shard of table '%s' of job %.127s, and shards do not move yet; "
                  "move tasks of tensors, or wait for the end of the job",
                  wanted->task, table->name, table->job->name);
    else
        peer_fail(p, request->id, -EOPNOTSUPP,
                  "job %.127s has table '%s', whose shards do not move yet; move its tensors "
                  "task by task, or wait for the end of the job",
                  table->job->name, table->name);
    return false;
}

void order_handle_move(struct peer *p, const envelope *request)
{
    const WIRE(MoveRequest) *wanted = request->move_request;
    if (!is_allowed(p, request))
        return;
    if (!*wanted->job && wanted->task == 0)
        return peer_fail(p, request->id, -EINVAL,
                         "the order names no job and no task; name the job or task to move");
    if (may_be_either(p->service, wanted))
        return peer_fail(p, request->id, -EINVAL,
                         "%.127s is a job's name and a task's number: write `job:%.127s' for all "
                         "tasks of the job, or `task:%u' for task %u of any job",
                         wanted->job, wanted->job, wanted->task, wanted->task);
    if (!move_is_allowed(p, request))
        return;
    const struct job *job = find_meant(p, request->id, wanted);
    if (!job || !lane_is_fit(p, request->id, wanted->lane))
        return;
    struct order *order = create(p, request->id);
    if (!order)
        return;
    order->lane = wanted->lane;
    order->task = wanted->task;
    order->jobs[order->jobs_count++] = job->id;
    order_begin(order, p, request->id);
}

/* --- drain --- */

static bool is_named(const struct lane *lane, const WIRE(DrainLanesRequest) * wanted)
{
    return wanted->lane ? lane->id == wanted->lane : lane->aggregator->id == wanted->aggregator;
}

/* Returns the state of a lane whose drain was undone: parked if no more lanes may open, and open
 * otherwise. */
static enum lane_use given_back(const struct lane *lane)
{
    const struct service *s = lane->aggregator->service;
    bool is_empty = lane->jobs == 0 && lane->arriving == 0;
    return s->scaling->is_on && is_empty && lanes_room(s) == 0 ? LANE_PARKED : LANE_OPEN;
}

void order_give_back(struct lane *lane, const char *why)
{
    lane->use = given_back(lane);
    lane->withheld_by = 0;
    log_info("lane %u of %s is %s: %s", lane->id, AGGREGATOR_NAME(lane->aggregator),
             lane->use == LANE_PARKED ? "parked" : "open again", why);
    orders_lane_back(lane);
}

static void withhold(struct lane *lane, uint64_t order)
{
    lane->use = LANE_WITHHELD;
    lane->withheld_by = order;
    log_info("an operator drained lane %u of %s", lane->id, AGGREGATOR_NAME(lane->aggregator));
}

/* Closes the named lanes for new tasks, or opens these lanes again. Returns the number of named
 * lanes. Sets order->lanes to the number of lanes that have changed. */
static size_t mark_lanes(struct aggregator *a, const WIRE(DrainLanesRequest) * wanted,
                         struct order *order)
{
    size_t count = 0;
    for (size_t i = 0; i < a->lanes_count && a->state != AGGREGATOR_LOST; i++) {
        struct lane *lane = &a->lanes[i];
        if (!is_named(lane, wanted))
            continue;
        count++;
        if ((lane->use == LANE_WITHHELD) != wanted->undo)
            continue;
        if (wanted->undo)
            order_give_back(lane, "an operator asked for it");
        else
            withhold(lane, order->id);
        order->lanes++;
    }
    return count;
}

static size_t mark_all(struct service *s, const WIRE(DrainLanesRequest) * wanted,
                       struct order *order)
{
    size_t count = 0;
    list_for_each_entry (struct aggregator, a, &s->aggregators, link)
        count += mark_lanes(a, wanted, order);
    return count;
}

/* Refuses to drain a lane with shards of tables, because lanes cannot hand over the rows of tables
 * yet. */
static bool drain_is_allowed(struct peer *p, const envelope *request)
{
    const WIRE(DrainLanesRequest) *wanted = request->drain_lanes_request;
    list_for_each_entry (const struct job, job, &p->service->jobs, link) {
        for (size_t i = 0; !wanted->undo && i < job->shares_count; i++) {
            const struct lane *lane = job->shares[i].lane;
            const struct job_table *table = is_named(lane, wanted) ? job_table_on(job, lane) : NULL;
            if (!table)
                continue;
            peer_fail(p, request->id, -EOPNOTSUPP,
                      "lane %u has shards of table '%s' of job %.127s, and shards do not move "
                      "yet; drain the lane after the end of the job",
                      lane->id, table->name, job->name);
            return false;
        }
    }
    return true;
}

void order_handle_drain(struct peer *p, const envelope *request)
{
    const WIRE(DrainLanesRequest) *wanted = request->drain_lanes_request;
    struct service *s = p->service;
    if (!is_allowed(p, request) || !drain_is_allowed(p, request))
        return;
    struct order *order = create(p, request->id);
    if (!order)
        return;
    if (mark_all(s, wanted, order) == 0) {
        order_free(order);
        return peer_fail(p, request->id, -ENOENT, "there is no %s %u; see gradpool status",
                         wanted->lane ? "lane" : "aggregator",
                         wanted->lane ? wanted->lane : wanted->aggregator);
    }
    if (wanted->undo)
        recovery_place_stranded(s); /* waiting jobs may use lanes whose drain was undone */
    if (!wanted->undo)
        order_add_jobs(order);
    order->from_lane = wanted->undo ? 0 : wanted->lane;
    order->from_aggregator = wanted->undo || wanted->lane ? 0 : wanted->aggregator;
    order_begin(order, p, request->id);
}
