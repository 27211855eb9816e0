/* Order in which a poll reads connections: tenants take turns, and so do a tenant's jobs, and the
 * connections of a job. A tenant has a share of the events, and some time in each poll. The time is
 * charged to the jobs. O35 of README.md. */
#include "svc/fabric/ofi/visit.h"

#include "svc/base/clock.h"
#include "svc/fabric/ofi/conn.h"
#include "svc/fabric/ofi/provider/party.h"
#include "svc/fabric/ofi/transfer.h"
#include "svc/fabric/share.h"

/* Time of a tenant in one poll, alone and beside others. At least one connection is read. */
#define ALONE_NS (250 * NS_PER_US)
#define BESIDE_NS (50 * NS_PER_US)

/* State of one pass over the connections. */
struct visit {
    struct ofi_turns *turns;
    struct ofi_batch *batch;
    uint64_t began_ns, now_ns;
    uint64_t until_ns; /* end of the tenant's time */
};

static bool visit_has_data_phase(const struct ofi_conn *c)
{
    return c->phase == OFI_OPEN || c->phase == OFI_LINGERING || c->phase == OFI_ENDING;
}

/* Reads a connection's queue. Completions of a connection that is not open yet stay in the queue,
 * because OPEN is reported first. If the batch is full, events may be left. */
static void visit_conn(struct visit *v, struct ofi_conn *c, struct ofi_batch *batch)
{
    c->is_due = false;
    c->place->read_in_poll = v->turns->polls;
    if (!visit_has_data_phase(c) || ofi_transfer_drain(c, batch))
        ofi_conn_advance(c, v->began_ns, batch);
    c->is_due |= ofi_batch_is_full(batch);
}

/* The provider moves bytes only when it is called, and its descriptor may not report bytes that it
 * has read ahead (O5). So no connection is skipped before the thread sleeps. */
static void visit_stop_before(struct visit *v, struct list *head, struct list *node)
{
    fabric_begin_at(head, node);
    v->turns->is_behind = true;
}

/* Reads connections without a party. The caller of a fabric without groups limits no time. */
static void visit_loose(struct visit *v)
{
    list_for_each_safe (node, &v->turns->active) {
        const struct ofi_place *place = list_entry(node, struct ofi_place, in_active);
        if (place->read_in_poll == v->turns->polls)
            continue;
        if (ofi_batch_is_full(v->batch)) {
            visit_stop_before(v, &v->turns->active, node);
            return;
        }
        visit_conn(v, place->conn, v->batch);
    }
}

/* Reads connections of one job, up to `events_max` events in the batch. */
static void visit_conns(struct visit *v, struct ofi_party *job, int events_max)
{
    struct ofi_batch part = {v->batch->events, events_max, v->batch->count};
    list_for_each_safe (node, &job->members) {
        const struct ofi_place *place = list_entry(node, struct ofi_place, in_active);
        if (place->read_in_poll == v->turns->polls)
            continue;
        if (ofi_batch_is_full(&part) || v->now_ns >= v->until_ns) {
            visit_stop_before(v, &job->members, node);
            break;
        }
        visit_conn(v, place->conn, &part);
        v->now_ns = clock_now_ns();
    }
    v->batch->count = part.count;
}

/* Returns the limit of the batch for the next of these groups. */
static int visit_limit(const struct visit *v, int share, int events_max)
{
    int room = events_max - v->batch->count;
    return v->batch->count + (room < share ? room : share);
}

static void visit_jobs(struct visit *v, struct ofi_party *tenant, int events_max)
{
    int share = fabric_share(&tenant->members, events_max - v->batch->count);
    list_for_each_safe_entry (struct ofi_party, job, &tenant->members, in_turn) {
        uint64_t began_ns = v->now_ns;
        if (v->batch->count >= events_max || began_ns >= v->until_ns) {
            visit_stop_before(v, &tenant->members, &job->in_turn);
            return;
        }
        visit_conns(v, job, visit_limit(v, share, events_max));
        ofi_party_bill(v->turns, job, v->now_ns - began_ns);
    }
}

static void visit_tenants(struct visit *v)
{
    struct list *tenants = &v->turns->tenants;
    uint64_t most_ns = tenants->next == tenants->previous ? ALONE_NS : BESIDE_NS;
    int share = fabric_share(tenants, v->batch->events_max - v->batch->count);
    list_for_each_safe_entry (struct ofi_party, tenant, tenants, in_turn) {
        if (ofi_batch_is_full(v->batch)) {
            visit_stop_before(v, tenants, &tenant->in_turn);
            return;
        }
        v->until_ns = v->now_ns + most_ns;
        visit_jobs(v, tenant, visit_limit(v, share, v->batch->events_max));
    }
}

void ofi_visit_active(struct ofi_fabric *f, struct ofi_batch *batch)
{
    struct visit v = {.turns = f->turns, .batch = batch, .began_ns = clock_now_ns()};
    v.now_ns = v.began_ns;
    visit_loose(&v);
    visit_tenants(&v);
    f->turns->visited_ns = v.now_ns;
}
