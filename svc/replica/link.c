/* Connections to the lanes whose states are stored: tickets, transports, memory that lanes may
 * write to, offers of copies. Attempts are repeated while tickets arrive. A copy is never offered
 * to a lane while a former lane may still write to it (the fence, W5). README: J3 to J5. */
#include "svc/replica/internal.h"

#include "svc/base/clock.h"
#include "svc/base/err.h"
#include "svc/base/log.h"

#include <errno.h>
#include <stdlib.h>

/* pause before the next attempt, multiplied by the number of failures */
#define PAUSE_NS (100 * NS_PER_MS)
#define PAUSE_MOST 10
#define LIVED_NS NS_PER_S /* a connection that ends earlier counts as a failed attempt */
/* Time to connect. The kernel would try to connect to a silent host for two minutes (J5). */
#define CONNECT_NS NS_PER_S

/* ---- offers ---- */

static bool lend_all(struct holder_link *l)
{
    const struct slabs *slabs = &l->job->slabs;
    while (l->lent < slabs->count) {
        int error = fabric_lend(l->conn, &slabs->slab[l->lent].region, l->lent);
        if (error < 0 && error != -EAGAIN && error != -ECONNRESET) {
            log_warn("job '%s': this replica holder cannot give its memory to lane %u: %s",
                     l->job->name, l->lane, err_text(error));
            fabric_leave(l->conn);
        }
        if (error < 0)
            return false;
        l->lent++;
    }
    return true;
}

/* Sends the offer of a copy. No lane can write to the copy at this time (J2): former lanes are
 * fenced, and this lane has received no offer on this connection. */
static int offer_send(struct holder_link *l, struct kept_copy *copy)
{
    struct record_backup offer;
    if (copy->begins)
        kept_copy_wipe(copy);
    kept_copy_describe(l->job, copy, &offer);
    int error = fabric_send(l->conn, &offer, sizeof offer, NULL, 0);
    copy->is_offered |= error == 0;
    return error;
}

void holder_link_flush(struct holder_link *l)
{
    if (l->state != LINK_OPEN || !lend_all(l) || kept_ring_flush(l) < 0)
        return;
    list_for_each_safe_entry (struct kept_copy, copy, &l->unoffered, unoffered) {
        if (copy->fence)
            continue;
        if (offer_send(l, copy) < 0)
            return; /* the remaining offers follow after the next ROOM or CLOSED event */
        list_remove(&copy->unoffered);
    }
}

static void offer_again(struct kept_copy *copy)
{
    list_remove(&copy->unoffered);
    list_append(&copy->link->unoffered, &copy->unoffered);
}

/* ---- tickets ---- */

void holder_link_ask(struct holder_link *l, uint64_t delay_ns)
{
    struct holder *k = l->job->holder;
    l->state = LINK_ASKING;
    l->is_asked = false;
    l->ask_at_ns = clock_now_ns() + delay_ns;
    k->options.asks(k->options.context);
}

static uint64_t pause_of(const struct holder_link *l)
{
    return PAUSE_NS * (l->failures < PAUSE_MOST ? l->failures : PAUSE_MOST);
}

static void try_otherwise(struct holder_link *l)
{
    l->failures++;
    l->wants_ofi = !l->wants_ofi; /* alternates between shared memory and the network */
    holder_link_ask(l, pause_of(l));
}

static int open_fabric(struct holder *k, const char *kind, struct fabric **fabric)
{
    struct fabric_options options = {.interface_name = k->options.interface_name,
                                     .provider = k->options.provider};
    return *fabric ? 0 : fabric_open(kind, &options, fabric);
}

static int try_connect(struct holder_link *l, bool is_ofi, const char *address,
                       const struct record_connect *ticket)
{
    struct holder *k = l->job->holder;
    struct engine *e = &k->engine;
    struct fabric **fabric = is_ofi ? &e->ofi : &e->shm;
    int error = *address ? open_fabric(k, is_ofi ? "ofi" : "shm", fabric) : -EADDRNOTAVAIL;
    if (error == 0)
        error = fabric_connect(*fabric, address, ticket, sizeof *ticket, l, &l->conn);
    if (error < 0)
        return error;
    l->is_ofi = is_ofi;
    l->state = LINK_CONNECTING;
    l->open_by_ns = clock_now_ns() + CONNECT_NS;
    *(is_ofi ? &e->ofi_conns : &e->shm_conns) += 1;
    return 0;
}

void holder_link_connect(struct holder_link *l, const char *shm, const char *ofi,
                         const struct record_connect *ticket)
{
    int error = l->wants_ofi ? -EADDRNOTAVAIL : try_connect(l, false, shm, ticket);
    if (error < 0)
        error = try_connect(l, true, ofi, ticket);
    if (error == 0)
        return;
    log_info("job '%s': this replica holder cannot reach lane %u: %s", l->job->name, l->lane,
             err_text(error));
    try_otherwise(l);
}

uint64_t holder_link_due_ns(const struct holder_link *l)
{
    if (l->state == LINK_ASKING && !l->is_asked && !l->job->is_over)
        return l->ask_at_ns;
    return l->state == LINK_CONNECTING ? l->open_by_ns : UINT64_MAX;
}

/* Ends the attempt. The state stays LINK_CONNECTING, so that the CLOSED event counts as a failed
 * attempt. */
void holder_link_give_up(struct holder_link *l)
{
    log_info("job '%s': lane %u does not answer this replica holder", l->job->name, l->lane);
    l->open_by_ns = UINT64_MAX;
    fabric_leave(l->conn);
}

/* ---- life ---- */

struct holder_link *holder_link_get(struct kept_job *job, uint32_t lane)
{
    list_for_each_entry (struct holder_link, l, &job->links, node)
        if (l->lane == lane)
            return l;
    struct holder_link *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->job = job;
    l->lane = lane;
    list_init(&l->unoffered);
    list_append(&job->links, &l->node);
    return l;
}

static bool is_fence(const struct holder_link *l)
{
    for (size_t i = 0; i < l->job->copies_room; i++) {
        if (l->job->copies[i] && l->job->copies[i]->fence == l)
            return true;
    }
    return false;
}

/* Ends a connection. CLOSED follows when the lane can no longer write (J3). A connection that is
 * already closing may still have to be fenced, if its lane was lost in the meantime. */
static void close_link(struct holder_link *l, void (*end_conn)(struct fabric_conn *c))
{
    if (l->state == LINK_CLOSING && end_conn != fabric_fence)
        return;
    l->state = LINK_CLOSING;
    l->wants_open = false;
    end_conn(l->conn);
}

/* Frees the dropped copies of a closed link, because its lane can no longer write. */
static void free_copies(struct holder_link *l)
{
    struct kept_job *job = l->job;
    for (size_t i = 0; i < job->copies_room; i++) {
        struct kept_copy *copy = job->copies[i];
        if (copy && copy->link == l && !copy->is_kept)
            kept_copy_free(job, copy);
    }
}

void kept_job_release(struct kept_job *job)
{
    if (!list_is_empty(&job->links))
        return;
    for (size_t i = 0; i < job->copies_room; i++) {
        if (job->copies[i])
            kept_copy_free(job, job->copies[i]);
    }
    list_remove(&job->node);
    slabs_fini(&job->slabs);
    free(job->copies);
    free(job);
}

void holder_link_end(struct holder_link *l)
{
    if (l->conn) {
        close_link(l, fabric_leave);
        return;
    }
    free_copies(l);
    kept_ring_free(l);
    list_remove(&l->node);
    free(l);
}

/* holder_keep() calls this function once for all copies in a message, so that one ticket is
 * requested for these copies. */
void holder_link_use(struct holder_link *l)
{
    if (l->state == LINK_CLOSING)
        l->wants_open = true;
    else if (l->state == LINK_IDLE)
        holder_link_ask(l, 0);
    else
        holder_link_flush(l);
}

void holder_link_fence(struct holder_link *l) { close_link(l, fabric_fence); }

void holder_link_end_ring(struct holder_link *l)
{
    l->ring->is_over = true;
    l->copies--;
    if (l->conn) {
        close_link(l, fabric_leave);
        l->wants_open = l->copies > 0;
        return;
    }
    kept_ring_free(l);
    if (l->copies == 0)
        holder_link_end(l);
}

/* ---- a copy's lane ---- */

static void leave(struct kept_copy *copy)
{
    list_remove(&copy->unoffered);
    copy->link->copies--;
    copy->is_kept = false;
}

void holder_link_drop(struct kept_copy *copy)
{
    struct holder_link *l = copy->link;
    leave(copy);
    if (copy->fence)
        copy->link = copy->fence;
    copy->fence = NULL;
    if (l->copies == 0)
        holder_link_end(l);
}

/* Fences a former lane before the copy is offered to another lane. A lane that has released the
 * piece has finished writing. A lost lane may be alive, so its connection is fenced. A lane whose
 * copy was dropped here may still have posted operations, so its connection is closed, too. On its
 * next connection that lane receives the offers of its remaining copies again. */
static void fence(struct kept_copy *copy, struct holder_link *former, bool was_kept)
{
    copy->fence = former;
    close_link(former, was_kept ? fabric_fence : fabric_leave);
    former->wants_open = former->copies > 0;
}

/* Closes the connection of a lane that may still write to a copy, because a new replica begins in
 * this copy. The lane receives the new offer after it has detected the end of this connection. */
static void begin_anew(struct holder_link *l, const struct kept_copy *copy)
{
    if (copy->begins && copy->is_offered && l->state == LINK_OPEN)
        close_link(l, fabric_leave);
}

void holder_link_take(struct holder_link *l, struct kept_copy *copy, bool has_let_go)
{
    struct holder_link *former = copy->link;
    bool was_kept = copy->is_kept;
    if (was_kept)
        leave(copy);
    if (former && former != l && former->conn && !copy->fence && !(was_kept && has_let_go))
        fence(copy, former, was_kept);
    copy->is_offered &= former == l;
    begin_anew(l, copy);
    copy->link = l;
    copy->is_kept = true;
    copy->note++;
    l->copies++;
    offer_again(copy);
    if (former && former != l && former->copies == 0 && !is_fence(former))
        holder_link_end(former);
}

/* ---- events ---- */

static void opened(struct holder_link *l)
{
    if (l->state != LINK_CONNECTING)
        return;
    l->state = LINK_OPEN;
    l->opened_ns = clock_now_ns();
    log_debug("job '%s': this replica holder stores replicas of lane %u, by %s", l->job->name,
              l->lane, l->is_ofi ? "tcp" : "shared memory");
    holder_link_flush(l);
}

static void lift_fences(struct holder_link *l)
{
    struct kept_job *job = l->job;
    for (size_t i = 0; i < job->copies_room; i++) {
        if (job->copies[i] && job->copies[i]->fence == l)
            job->copies[i]->fence = NULL;
    }
    list_for_each (node, &job->links)
        holder_link_flush(list_entry(node, struct holder_link, node));
}

/* Lists all offers again for the next connection, because the offers became invalid with the last
 * connection. */
static void offer_all_again(struct holder_link *l)
{
    for (size_t i = 0; i < l->job->copies_room; i++) {
        struct kept_copy *copy = l->job->copies[i];
        if (!copy || copy->link != l || !copy->is_kept)
            continue;
        copy->is_offered = false;
        offer_again(copy);
    }
}

/* Requests the next ticket. A connection that ended soon counts as a failed attempt. */
static void ask_after(struct holder_link *l)
{
    bool was_use = clock_now_ns() >= l->opened_ns + LIVED_NS;
    l->failures = was_use ? 0 : l->failures + 1;
    holder_link_ask(l, pause_of(l));
}

static void closed(struct holder_link *l)
{
    struct kept_job *job = l->job;
    struct engine *e = &job->holder->engine;
    enum holder_link_state was = l->state;
    *(l->is_ofi ? &e->ofi_conns : &e->shm_conns) -= 1;
    l->conn = NULL;
    l->lent = 0;
    l->state = LINK_IDLE;
    free_copies(l);
    kept_ring_closed(l);
    offer_all_again(l);
    lift_fences(l);
    if (l->copies == 0 || job->is_over)
        holder_link_end(l);
    else if (was == LINK_CONNECTING)
        try_otherwise(l);
    else if (was == LINK_OPEN)
        ask_after(l);
    else if (l->wants_open)
        holder_link_ask(l, 0);
    kept_job_release(job);
}

/* Drops the copy of a piece for which the lane has another holder. The last writes of the lane
 * arrived before this record. */
static void released(struct holder_link *l, const struct record_backed *release)
{
    struct kept_copy *copy = kept_copy_find(l->job, release->piece);
    bool is_meant = copy && copy->is_kept && copy->link == l && copy->note == release->note;
    if (release->round != RECORD_ROUND_NONE || !is_meant)
        return;
    copy->is_offered = false;
    holder_link_drop(copy);
}

static void heard(struct holder_link *l, const struct fabric_event *event)
{
    union record record;
    size_t record_size;
    bool is_sound = record_check(event->data, event->bytes, &record, &record_size) == 0;
    fabric_message_done(event->conn, event->data);
    if (is_sound && record.kind == RECORD_BACKED && l->state == LINK_OPEN)
        released(l, &record.backed);
    else if (is_sound && record.kind == RECORD_LOGGED && l->state == LINK_OPEN)
        kept_ring_logged(l, &record.logged);
}

void holder_link_event(void *context, const struct fabric_event *event)
{
    struct holder_link *l = event->owner;
    (void)context; /* the context is the holder, to which the link already points */
    switch (event->kind) {
    case FABRIC_EVENT_OPEN: opened(l); break;
    case FABRIC_EVENT_MESSAGE: heard(l, event); break;
    case FABRIC_EVENT_ROOM: holder_link_flush(l); break;
    case FABRIC_EVENT_CLOSED: closed(l); break;
    default: break; /* this process gets no completion events when lanes write here */
    }
}
