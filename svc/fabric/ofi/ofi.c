/* fabric_ofi implements fabric.h with libfabric's connected endpoints (README, O1 to O13). Owns one
 * fabric, one domain and one event queue, and polls its connections. Never changes libfabric's
 * environment, and never blocks. libfabric makes progress only inside fabric_poll(). */
#include "svc/fabric/ofi/ofi.h"

#include "svc/base/clock.h"
#include "svc/fabric/ofi/conn.h"
#include "svc/fabric/ofi/door/guard.h"
#include "svc/fabric/ofi/events.h"
#include "svc/fabric/ofi/library/library.h"
#include "svc/fabric/ofi/pack.h"
#include "svc/fabric/ofi/provider/listen.h"
#include "svc/fabric/ofi/provider/names.h"
#include "svc/fabric/ofi/provider/queue.h"
#include "svc/fabric/ofi/provider/turn.h"
#include "svc/fabric/ofi/send.h"
#include "svc/fabric/ofi/transfer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define READY_A_POLL 64
#define POLLS_WITHOUT_LOOK_MAX 8
#define LOOK_NS (50 * NS_PER_US)
#define FEW_CONNS 2
#define CLOSE_ALL_NS (200 * NS_PER_MS)

static struct ofi_fabric *ofi_of(const struct fabric *f) { return (struct ofi_fabric *)f; }

/* --- polling --------------------------------------------------------------------------------- */

static void ofi_free_gone(struct ofi_fabric *f)
{
    list_for_each_safe (node, &f->gone)
        ofi_conn_free(list_entry(node, struct ofi_conn, in_fabric));
}

static void ofi_on_timer(struct ofi_fabric *f)
{
    uint64_t expirations;
    if (read(f->timer_fd, &expirations, sizeof(expirations)) < 0)
        return;
    uint64_t now_ns = clock_now_ns();
    f->timer_ns = 0;
    list_for_each_entry (struct ofi_conn, c, &f->conns, in_fabric) {
        if (c->phase != OFI_LINGERING && c->phase != OFI_ENDING)
            continue;
        if (c->deadline_ns > now_ns)
            ofi_queue_set_timer(f, c->deadline_ns);
        else
            ofi_queue_activate(c);
    }
}

/* Finds the queues that have completions. The cost of a poll therefore depends only on the number
 * of active connections. */
static void ofi_find_active(struct ofi_fabric *f)
{
    struct epoll_event ready[READY_A_POLL];
    int count = epoll_wait(f->epoll_fd, ready, READY_A_POLL, 0);
    for (int i = 0; i < count; i++) {
        struct ofi_conn *c = ready[i].data.ptr;
        if (ready[i].data.ptr == &f->timer_fd)
            ofi_on_timer(f);
        else if (ready[i].data.ptr == &f->eq_fd)
            f->is_eq_armed = false;
        else if (ready[i].data.ptr == f->listener)
            ofi_listener_look(f->listener);
        else
            ofi_queue_disarm(c);
    }
}

static bool ofi_has_data_phase(const struct ofi_conn *c)
{
    return c->phase == OFI_OPEN || c->phase == OFI_LINGERING || c->phase == OFI_ENDING;
}

/* Reads a connection's queue. Completions of a connection that is not open yet stay in the queue,
 * because OPEN is reported first. If the batch is full, events may be left. No descriptor reports
 * these, so the next poll must happen before the thread sleeps. */
static void ofi_visit(struct ofi_conn *c, uint64_t now_ns, struct ofi_batch *batch)
{
    c->is_due = false;
    if (!ofi_has_data_phase(c) || ofi_transfer_drain(c, batch))
        ofi_conn_advance(c, now_ns, batch);
    c->is_due |= ofi_batch_is_full(batch);
}

/* Reads a connection's queue once in a poll, and charges the time to the job. A connection that a
 * poll has not reached needs no record for the next poll: either `is_due` of the connection is set,
 * or its descriptor reports the bytes (O5). */
static int ofi_take(struct list *node, struct fabric_event *events, int events_max)
{
    struct ofi_place *place = list_entry(node, struct ofi_place, in_turn);
    struct ofi_turns *turns = ofi_fabric_of(place->conn)->turns;
    /* read first: reading the queue may end the connection and take it out of its group */
    struct fabric_group *group = place->group;
    struct ofi_batch batch = {.events = events, .events_max = events_max};
    uint64_t began_ns = turns->polled_ns;
    if (place->read_in_poll == turns->polls)
        return -1;
    place->read_in_poll = turns->polls;
    ofi_visit(place->conn, began_ns, &batch);
    turns->polled_ns = clock_now_ns();
    if (turns->moves_apart)
        fabric_group_charge(group, turns->polled_ns - began_ns, 0);
    return batch.count;
}

/* Reads queues that are not armed and that this poll has not read yet. */
static void ofi_visit_active(struct ofi_turns *turns, struct ofi_batch *batch)
{
    turns->polled_ns = clock_now_ns();
    batch->count += fabric_turns_take(&turns->all, ofi_take, batch->events + batch->count,
                                      batch->events_max - batch->count);
}

/* Returns whether all queues are read without a search for active connections. With few
 * connections, the search costs more than reading all queues. */
static bool ofi_has_few(const struct ofi_fabric *f)
{
    const struct list *node = f->conns.next;
    for (int i = 0; i < FEW_CONNS && node != &f->conns; i++)
        node = node->next;
    return node == &f->conns;
}

/* Polls. Connections that are known to be active are read first. The descriptors of other
 * connections are checked in three cases: the active connections had no event;
 * POLLS_WITHOUT_LOOK_MAX polls have passed since the last check; or LOOK_NS has passed. Most polls
 * of a busy caller therefore save a system call. If the event queue has woken the caller, the
 * caller polls again until this queue is read. */
static int ofi_poll(struct fabric *base, struct fabric_event *events, int events_max)
{
    struct ofi_fabric *f = ofi_of(base);
    struct ofi_turns *turns = f->turns;
    struct ofi_batch batch = {.events = events, .events_max = events_max};
    turns->polls++;
    ofi_free_gone(f);
    ofi_pack_end_bursts(f);
    ofi_events_read(f, &batch);
    ofi_visit_active(turns, &batch);
    bool may_skip = batch.count > 0 || (ofi_has_few(f) && !list_is_empty(&turns->active));
    may_skip = may_skip && turns->polled_ns < turns->looked_ns + LOOK_NS;
    if (may_skip && ++turns->polls_without_look < POLLS_WITHOUT_LOOK_MAX)
        return batch.count;
    turns->looked_ns = turns->polled_ns;
    turns->polls_without_look = 0;
    ofi_find_active(f);
    ofi_events_read(f, &batch);
    ofi_visit_active(turns, &batch);
    return batch.count;
}

static bool ofi_may_sleep(struct ofi_fabric *f, struct ofi_conn *c)
{
    if (c->is_due)
        return false;
    struct fid *cq = c->cq ? &c->cq->fid : NULL;
    return cq == NULL || fi_trywait(f->fabric, &cq, 1) == 0;
}

static int ofi_arm(struct fabric *base, struct fabric_wait *ret_wait)
{
    struct ofi_fabric *f = ofi_of(base);
    struct fid *eq = &f->eq->fid;
    ofi_pack_end_bursts(f);
    if (!f->is_eq_armed && fi_trywait(f->fabric, &eq, 1) != 0)
        return -EAGAIN;
    f->is_eq_armed = true;
    bool stays = ofi_has_few(f);
    list_for_each_safe (node, &f->turns->active) {
        struct ofi_conn *c = list_entry(node, struct ofi_place, in_active)->conn;
        if (!ofi_may_sleep(f, c))
            return -EAGAIN;
        if (!stays)
            ofi_turn_end(c);
    }
    *ret_wait = (struct fabric_wait){.fd = f->epoll_fd};
    return 0;
}

/* Ends the bursts, which sends the packs. Only small operations of a burst wait in packs (O13); all
 * other operations were sent when they were posted. */
static void ofi_flush(struct fabric *base) { ofi_pack_end_bursts(ofi_of(base)); }

/* --- opening and closing --------------------------------------------------------------------- */

static void ofi_describe_into(struct ofi_fabric *f, const char *address)
{
    snprintf(f->description, sizeof(f->description),
             "ofi: provider %s, libfabric %u.%u, interface %s, %s%s",
             f->info->fabric_attr->prov_name, FI_MAJOR(fi_version()), FI_MINOR(fi_version()),
             f->interface_name ? f->interface_name : "any",
             address ? "listening on " : "not listening", address ? address : "");
}

static int ofi_watch(struct ofi_fabric *f, int fd, void *mark)
{
    struct epoll_event on_ready = {.events = EPOLLIN, .data.ptr = mark};
    return epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &on_ready) < 0 ? -errno : 0;
}

static int ofi_open_waits(struct ofi_fabric *f)
{
    f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    f->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (f->epoll_fd < 0 || f->timer_fd < 0)
        return -errno;
    int error = ofi_watch(f, f->timer_fd, &f->timer_fd);
    return error < 0 ? error : ofi_watch(f, f->eq_fd, &f->eq_fd);
}

static int ofi_open_fabric(struct ofi_fabric *f)
{
    struct fi_eq_attr eq_wanted = {.wait_obj = FI_WAIT_FD};
    int error = fi_fabric(f->info->fabric_attr, &f->fabric, NULL);
    if (error == 0)
        error = fi_domain(f->fabric, f->info, &f->domain, NULL);
    if (error == 0)
        error = fi_eq_open(f->fabric, &eq_wanted, &f->eq, NULL);
    if (error == 0)
        error = fi_control(&f->eq->fid, FI_GETWAIT, &f->eq_fd);
    if (error != 0)
        return ofi_errno(error);
    error = ofi_memory_create(f->domain, f->info, &f->memory);
    return error < 0 ? error : ofi_open_waits(f);
}

static bool ofi_is_all_gone(struct ofi_fabric *f)
{
    list_for_each (node, &f->conns)
        if (list_entry(node, struct ofi_conn, in_fabric)->ep != NULL)
            return false;
    return true;
}

/* Polls until every endpoint is closed, but at most for `limit_ns`. */
static void ofi_poll_until_gone(struct ofi_fabric *f, uint64_t limit_ns)
{
    struct fabric_event ignored[READY_A_POLL];
    uint64_t deadline_ns = clock_now_ns() + limit_ns;
    for (uint64_t now_ns = 0; !ofi_is_all_gone(f) && now_ns < deadline_ns;
         now_ns = clock_now_ns()) {
        struct fabric_wait wait;
        ofi_poll(&f->base, ignored, READY_A_POLL);
        struct pollfd quiet = {.fd = f->epoll_fd, .events = POLLIN};
        if (!ofi_is_all_gone(f) && ofi_arm(&f->base, &wait) == 0)
            poll(&quiet, 1, clock_poll_ms(deadline_ns, clock_now_ns()));
    }
}

/* Ends every connection in order. Connections whose peer does not read are then shut down (O2). */
static void ofi_end_all(struct ofi_fabric *f)
{
    list_for_each_safe (node, &f->conns)
        ofi_conn_disconnect(list_entry(node, struct ofi_conn, in_fabric));
    ofi_poll_until_gone(f, CLOSE_ALL_NS);
    list_for_each_entry (struct ofi_conn, c, &f->conns, in_fabric)
        if (c->ep != NULL)
            ofi_queue_fail(c, -ECONNRESET);
    ofi_poll_until_gone(f, CLOSE_ALL_NS);
    list_for_each_safe_entry (struct ofi_conn, c, &f->conns, in_fabric) {
        ofi_conn_close(c);
        ofi_conn_free(c);
    }
    ofi_free_gone(f);
}

/* Reads the requests that libfabric has accepted but not reported. Otherwise libfabric would leak
 * their sockets. */
static void ofi_close_listener(struct ofi_fabric *f)
{
    struct fabric_event ignored[READY_A_POLL];
    struct ofi_batch batch = {.events = ignored, .events_max = READY_A_POLL};
    if (f->listener == NULL)
        return;
    f->is_eq_armed = false;
    ofi_events_read(f, &batch);
    list_for_each_safe (node, &f->conns)
        ofi_conn_refuse(list_entry(node, struct ofi_conn, in_fabric), ECONNREFUSED);
    ofi_free_gone(f);
    ofi_listener_close(f->listener);
    f->listener = NULL;
}

static void ofi_close(struct fabric *base)
{
    struct ofi_fabric *f = ofi_of(base);
    if (f->epoll_fd >= 0)
        ofi_end_all(f);
    ofi_close_listener(f);
    ofi_memory_destroy(f->memory);
    if (f->domain != NULL)
        fi_close(&f->domain->fid);
    if (f->eq != NULL)
        fi_close(&f->eq->fid);
    if (f->fabric != NULL)
        fi_close(&f->fabric->fid);
    if (f->epoll_fd >= 0)
        close(f->epoll_fd);
    if (f->timer_fd >= 0)
        close(f->timer_fd);
    fi_freeinfo(f->info);
    free(f->turns);
    free(f->interface_name);
    free(f);
}

/* Closes the child's copies of the sockets, which would keep connections and the port open after
 * the parent's end. Other libfabric objects are kept, because they do not affect peers. */
static void ofi_abandon_in_child(struct fabric *base)
{
    struct ofi_fabric *f = ofi_of(base);
    list_for_each_entry (struct ofi_conn, c, &f->conns, in_fabric) {
        ofi_guard_end(c->socket_fd);
        if (c->socket_fd >= 0)
            close(c->socket_fd);
        int fd = ofi_queue_fd(c);
        if (fd >= 0)
            close(fd);
    }
    ofi_listener_abandon(f->listener);
    close(f->eq_fd);
    close(f->timer_fd);
    close(f->epoll_fd);
}

/* --- listening ------------------------------------------------------------------------------- */

static int ofi_listen_at(struct fabric *base, const char *address, char *ret_address)
{
    struct ofi_fabric *f = ofi_of(base);
    if (f->listener != NULL)
        return -EALREADY;
    int error = ofi_listen(f, address, ret_address);
    if (error < 0) {
        ofi_close_listener(f);
        return error;
    }
    ofi_describe_into(f, ret_address);
    return 0;
}

/* --- the table of verbs ---------------------------------------------------------------------- */

static const char *ofi_describe(const struct fabric *base) { return ofi_of(base)->description; }

static int ofi_connect(struct fabric *base, const char *address, const void *ticket,
                       size_t ticket_bytes, void *owner, struct fabric_conn **ret_conn)
{
    struct ofi_conn *c;
    int error = ofi_conn_connect(ofi_of(base), address, ticket, ticket_bytes, owner, &c);
    if (error == 0)
        *ret_conn = &c->base;
    return error;
}

static int ofi_accept(struct fabric_conn *c, void *owner)
{
    return ofi_conn_accept(ofi_conn_of(c), owner);
}

static void ofi_join_group(struct fabric_conn *c, struct fabric_group *group)
{
    if (ofi_conn_of(c)->phase != OFI_GONE)
        ofi_turn_join(ofi_conn_of(c), group);
}

static void ofi_refuse(struct fabric_conn *c, int reason)
{
    ofi_conn_refuse(ofi_conn_of(c), reason);
}
static void ofi_disconnect(struct fabric_conn *c) { ofi_conn_disconnect(ofi_conn_of(c)); }

static const char *ofi_peer(const struct fabric_conn *c)
{
    return ofi_conn_of((struct fabric_conn *)(uintptr_t)c)->peer;
}

static int ofi_peer_pid(const struct fabric_conn *c)
{
    (void)c;
    return 0;
}

static int ofi_send_message(struct fabric_conn *c, const void *header, size_t header_bytes,
                            const void *payload, size_t payload_bytes)
{
    return ofi_send(ofi_conn_of(c), header, header_bytes, payload, payload_bytes);
}

static void ofi_message_done(struct fabric_conn *c, const void *data)
{
    ofi_queue_message_done(ofi_conn_of(c), data);
}

static int ofi_messages_held_max(const struct fabric *base)
{
    (void)base;
    return OFI_RECEIVES - 1;
}

static int ofi_lend_region(struct fabric_conn *c, const struct region *region, uint32_t id)
{
    return ofi_send_lend(ofi_conn_of(c), region, id);
}

static void ofi_withdraw(struct fabric_conn *c, uint32_t id)
{
    ofi_send_withdraw(ofi_conn_of(c), id);
}

/* The memory of the peer is in another process, and has no address in this one. */
static void *ofi_map(struct fabric_conn *c, uint32_t id, uint64_t offset, size_t bytes)
{
    (void)c, (void)id, (void)offset, (void)bytes;
    return NULL;
}

static bool ofi_is_sound(const struct fabric_conn *c) { return true; }

static uint64_t ofi_region_bytes(const struct fabric_conn *c, uint32_t id)
{
    const struct ofi_conn *conn = (const struct ofi_conn *)c;
    return id < FABRIC_REGIONS_MAX ? conn->foreign[id].bytes : 0;
}

static int ofi_pool_register(struct fabric *base, void *memory, size_t bytes)
{
    return ofi_memory_pool(ofi_of(base)->memory, memory, bytes);
}

static void ofi_pool_unregister(struct fabric *base, void *memory)
{
    ofi_memory_pool_end(ofi_of(base)->memory, memory);
}

static int ofi_read(struct fabric_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                    void *context)
{
    return ofi_transfer_read(ofi_conn_of(c), id, offset, local, bytes, context);
}

static int ofi_write(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                     size_t bytes, void *context)
{
    return ofi_transfer_write(ofi_conn_of(c), id, offset, local, bytes, NULL, context);
}

static int ofi_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                          size_t bytes, uint32_t word, void *context)
{
    return ofi_transfer_write(ofi_conn_of(c), id, offset, local, bytes, &word, context);
}

static int ofi_notify(struct fabric_conn *c, uint32_t word, void *context)
{
    return ofi_transfer_notify(ofi_conn_of(c), word, context);
}

static const struct fabric_conn_ops ofi_conn_ops = {
    .accept = ofi_accept,
    .join_group = ofi_join_group,
    .refuse = ofi_refuse,
    .disconnect = ofi_disconnect,
    .fence = ofi_disconnect, /* a closed endpoint writes nothing, so a fence is a disconnect */
    .leave = ofi_disconnect,
    .peer = ofi_peer,
    .peer_pid = ofi_peer_pid,
    .send = ofi_send_message,
    .message_done = ofi_message_done,
    .lend = ofi_lend_region,
    .withdraw = ofi_withdraw,
    .map = ofi_map,
    .is_sound = ofi_is_sound,
    .region_bytes = ofi_region_bytes,
    .read = ofi_read,
    .write = ofi_write,
    .write_word = ofi_write_word,
    .notify = ofi_notify,
};

static const struct fabric_ops ofi_ops = {
    .kind = "ofi",
    .close = ofi_close,
    .describe = ofi_describe,
    .listen = ofi_listen_at,
    .connect = ofi_connect,
    .messages_held_max = ofi_messages_held_max,
    .pool_register = ofi_pool_register,
    .pool_unregister = ofi_pool_unregister,
    .poll = ofi_poll,
    .flush = ofi_flush,
    .arm = ofi_arm,
    .abandon_in_child = ofi_abandon_in_child,
    .conn = &ofi_conn_ops,
};

int fabric_ofi_open(const struct fabric_options *options, struct fabric **ret_fabric)
{
    int error = ofi_library_load();
    if (error < 0)
        return error;
    struct ofi_fabric *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return -ENOMEM;
    f->base.ops = &ofi_ops;
    f->epoll_fd = f->eq_fd = f->timer_fd = -1;
    f->payload_bytes_max = (uint32_t)options->payload_bytes_max;
    list_init(&f->conns);
    list_init(&f->bursts);
    list_init(&f->gone);
    f->turns = ofi_turns_create();
    error = f->turns == NULL ? -ENOMEM
                             : ofi_provider_choose(options->provider, options->interface_name,
                                                   &f->info, &f->landed_flags);
    if (error == 0 && options->interface_name != NULL)
        f->interface_name = strdup(options->interface_name);
    if (error == 0)
        error = ofi_open_fabric(f);
    if (error < 0) {
        ofi_close(&f->base);
        return error;
    }
    ofi_describe_into(f, NULL);
    *ret_fabric = &f->base;
    return 0;
}

/* At run time libfabric reports only the first two numbers of its version. */
void fabric_ofi_library(struct library *ret_row)
{
    int error = ofi_library_load();
    uint32_t now = fi_version();
    ret_row->name = "libfabric";
    snprintf(ret_row->built, sizeof ret_row->built, "%d.%d", FI_MAJOR_VERSION, FI_MINOR_VERSION);
    if (error < 0)
        snprintf(ret_row->running, sizeof ret_row->running, "missing");
    else
        snprintf(ret_row->running, sizeof ret_row->running, "%u.%u", FI_MAJOR(now), FI_MINOR(now));
}
