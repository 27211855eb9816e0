/* Event queue of a fabric_ofi: converts requests, openings and ends of its endpoints into steps of
 * their connections. An event's fid is used only after the connection with this fid was found. */
#include "svc/fabric/ofi/events.h"

#include "svc/fabric/ofi/conn.h"
#include "svc/fabric/ofi/provider/names.h"
#include "svc/fabric/ofi/provider/queue.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <string.h>

/* Maximum bytes of connect data of the tcp provider. An RDMA provider has fewer. */
#define CONNECT_DATA_BYTES_MAX 256
#define EVENT_BYTES_MAX (sizeof(struct fi_eq_cm_entry) + CONNECT_DATA_BYTES_MAX)

/* Finds the connection by its fid. The queue may still contain an event of a closed endpoint, so
 * the fid is compared and never dereferenced. */
static struct ofi_conn *events_conn_of_fid(struct ofi_fabric *f, const struct fid *fid)
{
    list_for_each_entry (struct ofi_conn, c, &f->conns, in_fabric)
        if (c->ep != NULL && &c->ep->fid == fid)
            return c;
    return NULL;
}

static void events_on_request(struct ofi_fabric *f, const struct fi_eq_cm_entry *event,
                              size_t data_bytes, struct ofi_batch *batch)
{
    struct ofi_conn *c = ofi_conn_request(f, event->info, event->data, data_bytes);
    if (c == NULL)
        return;
    struct fabric_event *e = ofi_queue_emit(batch, c, FABRIC_EVENT_REQUEST);
    e->data = c->hello.ticket;
    e->bytes = c->hello.ticket_bytes;
}

static void events_on_event(struct ofi_fabric *f, uint32_t kind, const struct fi_eq_cm_entry *event,
                            size_t data_bytes, struct ofi_batch *batch)
{
    if (kind == FI_CONNREQ) {
        events_on_request(f, event, data_bytes, batch);
        return;
    }
    struct ofi_conn *c = events_conn_of_fid(f, event->fid);
    if (c == NULL)
        return;
    if (kind == FI_SHUTDOWN)
        ofi_conn_shut(c, -ECONNRESET, 0);
    else if (kind == FI_CONNECTED && ofi_conn_connected(c, event->data, data_bytes))
        ofi_queue_emit(batch, c, FABRIC_EVENT_OPEN);
}

static void events_on_error(struct ofi_fabric *f)
{
    uint32_t reason = 0;
    uint8_t data[CONNECT_DATA_BYTES_MAX];
    struct fi_eq_err_entry error = {.err_data = data, .err_data_size = sizeof(data)};
    if (fi_eq_readerr(f->eq, &error, 0) < 0)
        return;
    struct ofi_conn *c = events_conn_of_fid(f, error.fid);
    if (c == NULL)
        return;
    if (error.err == FI_ECONNREFUSED && error.err_data != NULL &&
        error.err_data_size >= sizeof(reason))
        memcpy(&reason, error.err_data, sizeof(reason));
    ofi_conn_shut(c, error.err ? ofi_errno(error.err) : -ECONNRESET, reason);
}

void ofi_events_read(struct ofi_fabric *f, struct ofi_batch *batch)
{
    while (!f->is_eq_armed && !ofi_batch_is_full(batch)) {
        _Alignas(struct fi_eq_cm_entry) uint8_t buffer[EVENT_BYTES_MAX];
        uint32_t kind;
        ssize_t bytes = fi_eq_read(f->eq, &kind, buffer, sizeof(buffer), 0);
        if (bytes == -FI_EAVAIL)
            events_on_error(f);
        else if (bytes < (ssize_t)sizeof(struct fi_eq_cm_entry))
            return;
        else
            events_on_event(f, kind, (const struct fi_eq_cm_entry *)buffer,
                            (size_t)bytes - sizeof(struct fi_eq_cm_entry), batch);
    }
}
