/* Owns the connections to lanes: gets tickets, chooses shared memory or the network, makes a second
 * attempt, and reports the reason of a failure. Does not request routes, because the coordinator
 * sends routes without a request. */
#include "client/lib/link/link.h"

#include "client/lib/job/job_tables.h"
#include "client/lib/job/piece.h"
#include "client/lib/job/request.h"
#include "svc/base/log.h"
#include "svc/base/system/shortage.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum number of attempts, each with a new ticket. After the second failure the coordinator
 * decides whether the lane is lost (L38). */
#define ATTEMPTS_MAX 2

static void ticket_arrived(struct control_call *call, const envelope *reply, const struct err *err);
static void link_connect(struct link *l);
static void link_leave(struct link *l);

const char *link_name(const struct link *l, char *buffer, size_t buffer_bytes)
{
    if (l->has_address)
        snprintf(buffer, buffer_bytes, "lane %u of aggregator %u on %s", l->lane, l->aggregator,
                 l->node_name);
    else
        snprintf(buffer, buffer_bytes, "lane %u", l->lane);
    return buffer;
}

const char *link_way(const struct link *l, char *buffer, size_t buffer_bytes)
{
    bool is_far = l->has_address && l->ofi[0] && (l->is_ofi || l->wants_ofi || !l->shm[0]);
    buffer[0] = 0;
    if (is_far)
        snprintf(
            buffer, buffer_bytes,
            " at %.100s; is that address on a network of this host, and does a firewall let the "
            "port through? The aggregator's --advertise or --interface choose another",
            l->ofi);
    return buffer;
}

uint32_t link_pieces(const struct link *l)
{
    uint32_t count = 0;
    for_each_piece_in (p, l->job)
        count += p->link == l;
    return count + job_tables_are_on(l->job, l->lane);
}

/* ---- giving up ---- */

/* Fails the request of the open round. The round itself may still be completed by another owner of
 * the piece. If the caller gets lent memory of the round back, the tensor fails, too, because lanes
 * could still read or write this memory (L80). */
static void link_fail_request(struct link *l, struct gp_tensor *t)
{
    const struct push *open = &t->open;
    bool is_lent = (open->gradient && !open->copies_in) || (open->result && !open->copies_out);
    if (is_lent && t->without_commit > 0)
        tensor_break(t, l->failure.code, l->failure.text);
    else
        request_fail(t->request, l->failure.code, l->failure.text);
}

static void link_fail_requests(struct link *l)
{
    for_each_piece_in (p, l->job)
        if (p->link == l && p->tensor->request)
            link_fail_request(l, p->tensor);
    job_tables_fail_lane(l->job, l->lane, l->failure.code, l->failure.text);
    if (!l->conn)
        job_tables_end_lane(l->job, l->lane, l->failure.code, l->failure.text);
}

void link_break(struct link *l, int code, const char *format, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    err_set(&l->failure, code, "%s", text);
    l->is_hopeless = true;
    if (l->conn)
        link_leave(l);
    else
        l->state = LINK_CLOSED;
    link_fail_requests(l);
    engine_kick(&l->job->engine);
}

void link_lose(struct link *l, int code, const char *what)
{
    char name[128];
    err_set(&l->failure, code < 0 ? code : -ECONNRESET, "%s %s: %s",
            link_name(l, name, sizeof name), what, err_text(code < 0 ? code : -ECONNRESET));
    l->state = LINK_CLOSED;
    for_each_piece_in (p, l->job)
        p->is_orphan |= p->link == l;
    job_tables_lose(l->job, l->lane, 0, name);
    log_info("job '%s' rank %u: %s", l->job->name, l->job->rank, l->failure.text);
    engine_kick(&l->job->engine);
}

/* ---- the ticket ---- */

static void link_request_ticket(struct link *l)
{
    l->state = LINK_TICKET;
    l->has_ticket = false;
    if (l->is_asking)
        return;
    l->ticket_request = MESSAGE_PART(TicketRequest, ticket_request, .lane = l->lane,
                                     .failures = l->attempts >= ATTEMPTS_MAX ? l->attempts : 0);
    l->call.request = ENVELOPE(0, TICKET_REQUEST, ticket_request, &l->ticket_request);
    l->call.done = ticket_arrived;
    l->is_asking = true;
    control_post(l->job->control, &l->call);
}

static int link_take_ticket(struct link *l, const envelope *reply)
{
    if (reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_TICKET_REPLY)
        return -EPROTO;
    const Gradpool__Wire__TicketReply *said = reply->ticket_reply;
    if (!said->address || said->ticket.len != sizeof l->ticket)
        return -EPROTO;
    memcpy(&l->ticket, said->ticket.data, sizeof l->ticket);
    snprintf(l->shm, sizeof l->shm, "%s", said->address->shm);
    snprintf(l->ofi, sizeof l->ofi, "%s", said->address->ofi);
    snprintf(l->node_name, sizeof l->node_name, "%s", said->address->node);
    l->aggregator = said->address->aggregator;
    l->has_address = l->has_ticket = true;
    return 0;
}

/* Fails the link, which has no ticket for another attempt. If earlier attempts have failed, their
 * error is reported, because it is more precise than the missing ticket. */
static void link_lose_without_ticket(struct link *l, int code)
{
    bool was_tried = l->attempts >= ATTEMPTS_MAX;
    link_lose(l, was_tried ? l->failure.code : code,
              was_tried ? "cannot be reached" : "gives no ticket");
}

/* Loads libfabric before the first connection to another host. The job's lock is free during the
 * load, so rounds on other lanes continue. Errors are ignored here: opening the fabric reports
 * them. */
static void link_load_network(const struct link *l, const envelope *reply)
{
    enum client_transport transport = l->job->client->transport;
    if (transport == TRANSPORT_SHM ||
        reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_TICKET_REPLY ||
        !reply->ticket_reply->address)
        return;
    const Gradpool__Wire__LaneAddress *address = reply->ticket_reply->address;
    bool is_here = address->shm[0] && strcmp(address->node, l->job->host) == 0;
    if (address->ofi[0] && (transport == TRANSPORT_TCP || !is_here))
        (void)fabric_load("ofi");
}

/* Runs in the control thread. */
static void ticket_arrived(struct control_call *call, const envelope *reply, const struct err *err)
{
    struct link *l = container_of(call, struct link, call);
    struct gp_job *job = l->job;
    if (!err)
        link_load_network(l, reply);
    pthread_mutex_lock(&job->lock);
    l->is_asking = false;
    if (l->state == LINK_TICKET && !job->is_leaving) {
        int error = err ? err->code : link_take_ticket(l, reply);
        if (error == -EAGAIN)
            link_request_ticket(l);
        else if (error < 0)
            link_lose_without_ticket(l, error);
        else
            link_connect(l);
        engine_flush(&job->engine);
        engine_kick(&job->engine);
    }
    pthread_mutex_unlock(&job->lock);
}

/* ---- connecting ---- */

static int link_open_fabric(struct gp_job *job, const char *kind, struct fabric **fabric)
{
    struct fabric_options options = {.interface_name = job->client->interface_name};
    if (*fabric)
        return 0;
    int error = fabric_open(kind, &options, fabric);
    if (error == 0)
        log_info("%s", fabric_describe(*fabric));
    return error;
}

void link_prepare(struct gp_job *job)
{
    if (job->client->transport == TRANSPORT_SHM)
        return;
    /* called without the lock, so that other threads of the job continue */
    (void)fabric_load("ofi");
    pthread_mutex_lock(&job->lock);
    /* an error is ignored, because the first connection opens the fabric again */
    (void)link_open_fabric(job, "ofi", &job->engine.ofi);
    pthread_mutex_unlock(&job->lock);
}

static int link_try(struct link *l, bool is_ofi)
{
    struct engine *e = &l->job->engine;
    struct fabric **fabric = is_ofi ? &e->ofi : &e->shm;
    int error = link_open_fabric(l->job, is_ofi ? "ofi" : "shm", fabric);
    if (error == 0)
        error = fabric_connect(*fabric, is_ofi ? l->ofi : l->shm, &l->ticket, sizeof l->ticket, l,
                               &l->conn);
    if (error < 0)
        return error;
    l->is_ofi = is_ofi;
    l->has_ticket = false;
    l->state = LINK_CONNECTING;
    l->job->connecting++;
    *(is_ofi ? &e->ofi_conns : &e->shm_conns) += 1;
    return 0;
}

static bool node_was_told(const struct link *l)
{
    for_each_link (other, l->job)
        if (other->was_told && strcmp(other->node_name, l->node_name) == 0)
            return true;
    return false;
}

static const char refused_call[] = "the system call memfd_create is refused here; allow it in the "
                                   "seccomp profile, or set GRADPOOL_TRANSPORT=tcp";

/* Logs one line for each node when the network replaces shared memory. On the same host the line is
 * a warning. */
static void tell_fallback(struct link *l, int why)
{
    bool is_same_node = strcmp(l->node_name, l->job->host) == 0;
    if (node_was_told(l) || l->job->client->transport != TRANSPORT_AUTO)
        return;
    l->was_told = true;
    log_write(is_same_node ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
              "lane %u on %s shares no memory with this process (%s); using tcp", l->lane,
              l->node_name,
              why == -EACCES             ? "its --allow-uid does not list this user"
              : shortage_is_refusal(why) ? refused_call
              : why < 0                  ? err_text(why)
                                         : "the lane offers no shared memory");
}

static void link_connect(struct link *l)
{
    enum client_transport transport = l->job->client->transport;
    int error = -EADDRNOTAVAIL;
    if (transport != TRANSPORT_TCP && l->shm[0] && !l->wants_ofi) {
        error = link_try(l, false);
        if (error == 0)
            return;
    }
    if (transport != TRANSPORT_SHM && l->ofi[0]) {
        tell_fallback(l, l->wants_ofi ? l->failure.code : l->shm[0] ? error : 0);
        error = link_try(l, true);
        if (error == 0)
            return;
    }
    link_retry(l, error, 0);
}

/* Returns whether this process lacks a resource. Another lane would not help then. */
static bool is_our_own_lack(int code)
{
    return code == -EMFILE || code == -ENFILE || code == -ENOMEM || code == -ELIBACC ||
           code == -ELIBBAD;
}

static void link_note_failure(struct link *l, int code)
{
    char name[128], way[LINK_WAY_BYTES];
    err_set(&l->failure, code, "%s cannot be reached: %s%s", link_name(l, name, sizeof name),
            err_text(code), link_way(l, way, sizeof way));
}

/* Requests another ticket, because only the coordinator knows whether the lane is lost. The
 * coordinator delays a ticket after a failure (L38). */
static void try_later(struct link *l)
{
    log_info("job '%s' rank %u: %s", l->job->name, l->job->rank, l->failure.text);
    link_request_ticket(l);
}

/* Makes the next attempt with a new ticket, because the old ticket may be used already, or may be
 * for a lost aggregator. */
void link_retry(struct link *l, int error, uint32_t reason)
{
    enum client_transport transport = l->job->client->transport;
    char name[128], lack[SHORTAGE_BYTES];
    bool can_change = !l->is_ofi && !l->wants_ofi && transport == TRANSPORT_AUTO && l->ofi[0];
    int code = reason ? -(int)reason : error < 0 ? error : -ECONNRESET;
    l->attempts++;
    link_note_failure(l, code);
    if (l->attempts >= ATTEMPTS_MAX && can_change) {
        l->wants_ofi = true;
        l->attempts--;
    }
    if (l->attempts < ATTEMPTS_MAX)
        link_request_ticket(l);
    else if (code == -EDQUOT)
        link_break(
            l, code,
            "%s refuses rank %u of job '%s': the tenant already uses its share of the "
            "aggregator's descriptors; end other workers of the tenant, or have the operator "
            "raise ulimit -n or add aggregators",
            link_name(l, name, sizeof name), l->job->rank, l->job->name);
    else if (reason)
        link_break(l, code, "%s refuses rank %u of job '%s': %s", link_name(l, name, sizeof name),
                   l->job->rank, l->job->name, err_text(code));
    else if (error == -EADDRNOTAVAIL)
        link_break(l, error, "%s has no address for transport '%s' (shm '%s', ofi '%s')",
                   link_name(l, name, sizeof name), client_transports[transport], l->shm, l->ofi);
    else if (!l->is_ofi && shortage_is_refusal(code))
        link_break(l, code, "%s cannot be reached by shm: %s", link_name(l, name, sizeof name),
                   refused_call);
    else if (is_our_own_lack(code))
        link_break(l, code, "%s cannot be reached: %s", link_name(l, name, sizeof name),
                   shortage_text(code, SHORTAGE_OTHER, lack, sizeof lack));
    else
        try_later(l);
}

/* ---- life ---- */

void link_open(struct link *l)
{
    if (l->state == LINK_CLOSING) {
        l->wants_open = true;
        return;
    }
    if (l->state != LINK_CLOSED)
        return;
    l->attempts = 0;
    l->is_hopeless = l->wants_ofi = l->wants_open = false;
    l->failure.code = 0;
    if (l->has_ticket && l->has_address)
        link_connect(l); /* the lane has sent this ticket over the last connection (W7) */
    else
        link_request_ticket(l);
}

struct link *link_get(struct gp_job *job, uint32_t lane)
{
    for_each_link (l, job) {
        if (l->lane == lane) {
            /* a lane without a piece of this job may close the connection (L19) */
            l->is_left |= l->state == LINK_OPEN && link_pieces(l) == 0;
            l->wants_open &= l->state != LINK_OPEN;
            link_open(l);
            return l;
        }
    }
    struct link *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->job = job;
    l->lane = lane;
    l->state = LINK_CLOSED;
    list_init(&l->unsent);
    list_init(&l->call.node);
    list_append(&job->links, &l->node);
    link_open(l);
    return l;
}

void link_open_ahead(struct gp_job *job, uint32_t lane)
{
    struct link *l = link_get(job, lane);
    if (l)
        l->wants_open = true;
}

static void link_end(struct link *l, void (*end_conn)(struct fabric_conn *c))
{
    if (l->state == LINK_TICKET)
        l->state = LINK_CLOSED;
    if (!l->conn || l->state == LINK_CLOSING)
        return;
    if (l->state == LINK_OPEN)
        l->job->connecting++; /* a thread must drive the engine until the connection is closed */
    l->state = LINK_CLOSING;
    l->wants_open = false;
    end_conn(l->conn);
}

void link_close(struct link *l) { link_end(l, fabric_disconnect); }

/* Closes the connection after the lane has closed its side. From then on the lane does not use the
 * memory of calls. */
static void link_leave(struct link *l) { link_end(l, fabric_leave); }

void link_fence(struct link *l)
{
    if (l->conn && l->state == LINK_CLOSING)
        /* link_leave() has begun the close, and the lane was lost meanwhile */
        fabric_fence(l->conn);
    else
        link_end(l, fabric_fence);
}

void link_free(struct link *l)
{
    if (l && l->job->spoke == l)
        l->job->spoke = NULL;
    free(l);
}
