/* One connection of fabric_ofi: connecting, accepting, opening, ending. Owns the endpoint, its
 * completion queue and its buffers. An endpoint is closed only after its socket was shut down and
 * all posted operations have ended (O2). libfabric 1.17 corrupts memory if an endpoint is closed
 * during the response to a read. */
#include "svc/fabric/ofi/conn.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/endpoint/tcp_alive.h"
#include "svc/fabric/ofi/door/guard.h"
#include "svc/fabric/ofi/provider/listen.h"
#include "svc/fabric/ofi/provider/names.h"
#include "svc/fabric/ofi/provider/queue.h"
#include "svc/fabric/ofi/provider/turn.h"
#include "svc/fabric/ofi/send.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* Size of a completion queue, which has room for one completion of each slot, and for words of the
 * peer. */
#define QUEUE_SIZE (OFI_RECEIVES + OFI_SENDS_MAX + OFI_TRANSFERS_MAX + OFI_PACKS + 256)

/* --- making ---------------------------------------------------------------------------------- */

static struct ofi_conn *conn_new(struct ofi_fabric *f, void *owner, enum ofi_phase phase)
{
    struct ofi_conn *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return NULL;
    c->place = ofi_place_create(c);
    if (c->place == NULL) {
        free(c);
        return NULL;
    }
    fabric_conn_init(&c->base, &f->base);
    c->owner = owner;
    c->phase = phase;
    c->socket_fd = -1;
    c->written_end = &c->written;
    list_init(&c->in_bursts);
    list_append(&f->conns, &c->in_fabric);
    return c;
}

void ofi_conn_free(struct ofi_conn *c)
{
    ofi_turn_end(c);
    list_remove(&c->in_bursts);
    list_remove(&c->in_fabric);
    free(c->buffers);
    free(c->place);
    free(c);
}

static int conn_open_queue(struct ofi_conn *c)
{
    struct ofi_fabric *f = ofi_fabric_of(c);
    struct fi_cq_attr wanted = {
        .size = QUEUE_SIZE, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    int fd;
    int error =
        fi_cq_open(f->domain, &wanted, &c->cq, c) ?: fi_control(&c->cq->fid, FI_GETWAIT, &fd);
    if (error != 0)
        return ofi_errno(error);
    struct epoll_event on_ready = {.events = EPOLLIN, .data.ptr = c};
    return epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &on_ready) < 0 ? -errno : 0;
}

static int conn_open_endpoint(struct ofi_conn *c, struct fi_info *info)
{
    struct ofi_fabric *f = ofi_fabric_of(c);
    int error = conn_open_queue(c);
    if (error < 0)
        return error;
    error = fi_endpoint(f->domain, info, &c->ep, c);
    if (error == 0)
        error = fi_ep_bind(c->ep, &f->eq->fid, 0);
    if (error == 0)
        error = fi_ep_bind(c->ep, &c->cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
    if (error == 0)
        error = fi_ep_bind(c->ep, &c->cq->fid, FI_RECV);
    if (error == 0)
        error = fi_enable(c->ep);
    return error != 0 ? ofi_errno(error) : ofi_queue_prepare(c);
}

static void conn_close_fid(struct fid *fid, const char *what)
{
    int error = fi_close(fid);
    if (error != 0)
        log_warn("transport=ofi error=\"closing the %s failed: %s\"", what, fi_strerror(-error));
}

void ofi_conn_close(struct ofi_conn *c)
{
    if (c->request != NULL)
        ofi_listener_reject(ofi_fabric_of(c)->listener, take_ptr(c->request), ECONNREFUSED);
    ofi_guard_end(c->socket_fd);
    if (c->ep != NULL)
        conn_close_fid(&c->ep->fid, "endpoint");
    if (c->cq != NULL)
        epoll_ctl(ofi_fabric_of(c)->epoll_fd, EPOLL_CTL_DEL, ofi_queue_fd(c), NULL);
    if (c->cq != NULL)
        conn_close_fid(&c->cq->fid, "completion queue");
    if (c->buffers_mr != NULL)
        conn_close_fid(&c->buffers_mr->fid, "buffers");
    for (int i = 0; i < FABRIC_REGIONS_MAX; i++)
        if (c->lent[i] != NULL)
            ofi_memory_return(c->lent[i]);
    memset(c->lent, 0, sizeof(c->lent));
    c->ep = NULL;
    c->cq = NULL;
    c->buffers_mr = NULL;
    c->socket_fd = -1;
    c->phase = OFI_GONE;
}

/* Closes the connection, and removes it from the lists that polls use. The next poll frees it. */
static void conn_retire(struct ofi_conn *c)
{
    ofi_conn_close(c);
    ofi_turn_end(c);
    ofi_turn_join(c, NULL);
    list_remove(&c->in_bursts);
    list_remove(&c->in_fabric);
    list_append(&ofi_fabric_of(c)->gone, &c->in_fabric);
}

/* --- opening --------------------------------------------------------------------------------- */

static int conn_start_connect(struct ofi_conn *c, const struct ofi_address *target,
                              const void *ticket, size_t ticket_bytes)
{
    struct ofi_fabric *f = ofi_fabric_of(c);
    struct ofi_address own;
    if (f->interface_name != NULL) {
        int error = ofi_address_of_interface(f->interface_name, target->socket.ss_family, &own);
        if (error < 0)
            return error;
    }
    struct fi_info *info = ofi_info_for(f->info, f->interface_name ? &own : NULL, target);
    if (info == NULL)
        return -ENOMEM;
    int error = conn_open_endpoint(c, info);
    fi_freeinfo(info);
    if (error < 0)
        return error;
    uint8_t data[OFI_HELLO_BYTES_MAX];
    size_t bytes = ofi_hello_pack(f->payload_bytes_max, ticket, ticket_bytes, data);
    return ofi_errno(fi_connect(c->ep, &target->socket, data, bytes));
}

int ofi_conn_connect(struct ofi_fabric *f, const char *address, const void *ticket,
                     size_t ticket_bytes, void *owner, struct ofi_conn **ret_conn)
{
    struct ofi_address target;
    int error = ofi_address_of_peer(address, &target);
    if (error < 0)
        return error;
    struct ofi_conn *c = conn_new(f, owner, OFI_OPENING);
    if (c == NULL)
        return -ENOMEM;
    ofi_address_format(&target.socket, c->peer, sizeof(c->peer));
    error = conn_start_connect(c, &target, ticket, ticket_bytes);
    if (error < 0) {
        ofi_conn_close(c);
        ofi_conn_free(c);
        return error;
    }
    *ret_conn = c;
    return 0;
}

struct ofi_conn *ofi_conn_request(struct ofi_fabric *f, struct fi_info *info, const void *data,
                                  size_t data_bytes)
{
    struct ofi_conn *c = conn_new(f, NULL, OFI_REQUESTED);
    if (c == NULL || ofi_hello_check(data, data_bytes, &c->hello) < 0) {
        ofi_listener_reject(f->listener, info, c ? EPROTO : ENOMEM);
        if (c != NULL)
            ofi_conn_free(c);
        return NULL;
    }
    c->request = info;
    if (info->dest_addr != NULL)
        ofi_address_format(info->dest_addr, c->peer, sizeof(c->peer));
    return c;
}

void ofi_conn_refuse(struct ofi_conn *c, int reason)
{
    if (c->request == NULL)
        return;
    ofi_listener_reject(ofi_fabric_of(c)->listener, take_ptr(c->request), (uint32_t)reason);
    conn_retire(c);
}

/* Returns whether fi_accept() has sent the answer when it returns. libfabric 2 sends the answer in
 * fi_accept(), and then reads the peer's bytes at once. Version 1.17 sends the answer later, and
 * reads nothing before FI_CONNECTED. */
static bool conn_is_answered_at_accept(void) { return FI_MAJOR(fi_version()) >= 2; }

/* Installs the guard after the answer to the peer's request, but before the peer writes its first
 * bytes. If the peer's socket is not found, the peer has disconnected. */
static void conn_guard(struct ofi_conn *c)
{
    c->socket_fd = ofi_socket_find(c->ep);
    if (!ofi_listener_guards(c))
        return;
    int error = c->socket_fd < 0 ? -ECONNRESET : ofi_guard_begin(c->socket_fd, c->receive_bytes);
    c->is_guarded = error == 0;
    if (error < 0)
        ofi_queue_fail(c, error);
}

int ofi_conn_accept(struct ofi_conn *c, void *owner)
{
    if (c->request == NULL)
        return -ECONNRESET;
    uint8_t data[OFI_HELLO_BYTES_MAX];
    size_t bytes = ofi_hello_pack(ofi_fabric_of(c)->payload_bytes_max, NULL, 0, data);
    int error = conn_open_endpoint(c, c->request) ?: ofi_errno(fi_accept(c->ep, data, bytes));
    if (error < 0) {
        ofi_conn_refuse(c, -error);
        return error;
    }
    fi_freeinfo(c->request);
    c->request = NULL;
    c->owner = owner;
    c->phase = OFI_OPENING;
    c->is_accepted = true;
    if (conn_is_answered_at_accept())
        conn_guard(c);
    return 0;
}

bool ofi_conn_connected(struct ofi_conn *c, const void *data, size_t data_bytes)
{
    if (c->phase != OFI_OPENING)
        return false;
    if (!c->is_guarded)
        conn_guard(c);
    if (c->phase != OFI_OPENING)
        return false;
    /* Only the connecting end receives a hello here: the accepting end has received the peer's
     * hello with the request. */
    if (data_bytes > 0 && ofi_hello_check(data, data_bytes, &c->hello) < 0) {
        ofi_queue_fail(c, -EPROTO);
        return false;
    }
    /* The connecting end replaces dead connections, so it checks whether the peer's host
     * responds. */
    if (!c->is_accepted && c->socket_fd >= 0)
        tcp_alive_watch(c->socket_fd);
    c->phase = OFI_OPEN;
    ofi_queue_activate(c);
    return true;
}

/* --- ending ---------------------------------------------------------------------------------- */

void ofi_conn_shut(struct ofi_conn *c, int error, uint32_t reason)
{
    c->is_shut = true;
    if (c->phase < OFI_ENDING) {
        bool is_silent = !c->is_accepted && c->socket_fd >= 0 && tcp_alive_was_silent(c->socket_fd);
        c->error = is_silent ? -ETIMEDOUT : error;
        c->reason = reason;
    }
    ofi_queue_cut(c);
}

void ofi_conn_disconnect(struct ofi_conn *c)
{
    if (c->phase == OFI_REQUESTED)
        ofi_conn_refuse(c, ECONNREFUSED);
    if (c->is_ours || c->phase == OFI_GONE)
        return;
    c->is_ours = true;
    if (c->phase == OFI_ENDING)
        return;
    c->error = 0;
    if (c->phase != OFI_OPEN) {
        ofi_queue_cut(c);
        return;
    }
    c->phase = OFI_LINGERING;
    c->has_left = ofi_send_goodbye(c) == 0; /* after an error, conn_linger() tries again */
    ofi_queue_set_deadline(c);
    ofi_queue_activate(c);
}

static void conn_emit_closed(struct ofi_conn *c, struct ofi_batch *batch)
{
    struct fabric_event *e = ofi_queue_emit(batch, c, FABRIC_EVENT_CLOSED);
    bool is_orderly = c->is_ours || (c->peer_left && c->error == -ECONNRESET);
    e->error = is_orderly ? 0 : c->error;
    e->word = is_orderly ? 0 : c->reason;
    conn_retire(c);
}

/* Waits until the goodbye was sent. The goodbye is the last send, so all earlier sends have ended,
 * too. */
static void conn_linger(struct ofi_conn *c, uint64_t now_ns)
{
    if (!c->has_left)
        c->has_left = ofi_send_goodbye(c) == 0;
    if ((c->has_left && c->sends_head == c->sends_tail) || now_ns >= c->deadline_ns)
        ofi_queue_cut(c);
}

static unsigned conn_posted(const struct ofi_conn *c)
{
    return c->sends_asked + c->packs_posted + c->transfers_posted;
}

void ofi_conn_advance(struct ofi_conn *c, uint64_t now_ns, struct ofi_batch *batch)
{
    if (c->phase == OFI_LINGERING)
        conn_linger(c, now_ns);
    if (c->phase != OFI_ENDING || ofi_batch_is_full(batch))
        return;
    bool is_empty = c->is_shut && conn_posted(c) == 0;
    if (!is_empty && now_ns < c->deadline_ns)
        return;
    if (!is_empty)
        log_warn("transport=ofi peer=%s error=\"libfabric kept %u sends and %u transfers for a "
                 "second after the socket was cut; the endpoint is closed regardless\"",
                 c->peer, c->sends_asked + c->packs_posted, c->transfers_posted);
    conn_emit_closed(c, batch);
}
