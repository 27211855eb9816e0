/* Connects one rank to its lane: join, declare, ticket, connection. Owns a seat's control
 * connection; the fabric owns the connection to the lane. */
#include "bench/hostile/tenant.h"

#include "svc/base/clock.h"
#include "svc/wire/record.h"

#include <stdio.h>
#include <string.h>

#define EVENTS 64
#define OPEN_NS (2 * NS_PER_S)

/* Declares the tensor and returns its first piece. */
static bool declare(struct tenant *t, struct seat *seat, uint32_t *ret_lane)
{
    WIRE_TYPE(TensorSpec) tensor = GRADPOOL__WIRE__TENSOR_SPEC__INIT, *tensors[] = {&tensor};
    WIRE_TYPE(DeclareRequest) declare = GRADPOOL__WIRE__DECLARE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    tensor.name = (char *)"tensor";
    tensor.dtype = 1;
    tensor.elements = seat->bytes / sizeof(float);
    declare.tensors = tensors;
    declare.n_tensors = 1;
    request.body_case = BODY(DECLARE_REQUEST);
    request.declare_request = &declare;
    envelope *reply = tenant_call(t, seat->control, &request);
    bool has_piece = reply && reply->declare_reply->n_tensors == 1 &&
                     reply->declare_reply->tensors[0]->n_pieces > 0;
    if (has_piece) {
        const WIRE_TYPE(Piece) *piece = reply->declare_reply->tensors[0]->pieces[0];
        seat->piece = piece->id;
        seat->epoch = piece->epoch;
        seat->bytes = piece->elements * sizeof(float);
        *ret_lane = piece->lane;
    }
    if (reply)
        gradpool__wire__envelope__free_unpacked(reply, NULL);
    return has_piece;
}

static bool ask_for_ticket(struct tenant *t, struct seat *seat, uint32_t lane, void *ret_ticket)
{
    WIRE_TYPE(TicketRequest) ask = GRADPOOL__WIRE__TICKET_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    ask.lane = lane;
    request.body_case = BODY(TICKET_REQUEST);
    request.ticket_request = &ask;
    envelope *reply = tenant_call(t, seat->control, &request);
    if (!reply)
        return false;
    const WIRE_TYPE(TicketReply) *ticket = reply->ticket_reply;
    bool fits = ticket->address && ticket->ticket.len == FABRIC_TICKET_BYTES_MAX;
    if (fits) {
        memcpy(ret_ticket, ticket->ticket.data, FABRIC_TICKET_BYTES_MAX);
        snprintf(seat->shm, sizeof seat->shm, "%s", ticket->address->shm);
        snprintf(seat->ofi, sizeof seat->ofi, "%s", ticket->address->ofi);
    }
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return fits;
}

bool seat_join(struct tenant *t, const char *job, uint32_t rank, uint32_t workers, uint64_t bytes,
               struct seat *ret_seat, void *ret_ticket)
{
    uint32_t lane;
    *ret_seat = (struct seat){.bytes = bytes};
    ret_seat->control = tenant_greet(t, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    if (ret_seat->control && tenant_join(t, ret_seat->control, job, rank, workers) &&
        declare(t, ret_seat, &lane) && ask_for_ticket(t, ret_seat, lane, ret_ticket))
        return true;
    channel_destroy(ret_seat->control);
    ret_seat->control = NULL;
    return false;
}

static bool await_open(struct fabric *f, struct seat *seat)
{
    struct fabric_event events[EVENTS];
    for (uint64_t until_ns = clock_now_ns() + OPEN_NS; clock_now_ns() < until_ns;) {
        int got = fabric_poll(f, events, EVENTS);
        for (int i = 0; i < got; i++) {
            if (events[i].kind == FABRIC_EVENT_MESSAGE)
                fabric_message_done(events[i].conn, events[i].data);
            if (events[i].conn == seat->lane && events[i].kind == FABRIC_EVENT_OPEN)
                return true;
            if (events[i].conn == seat->lane && events[i].kind == FABRIC_EVENT_CLOSED)
                return false;
        }
        tenant_pause_us(100);
    }
    return false;
}

bool seat_take(struct tenant *t, struct fabric *f, const char *job, uint32_t rank, uint32_t workers,
               uint64_t bytes, struct seat *ret_seat)
{
    uint8_t ticket[FABRIC_TICKET_BYTES_MAX];
    if (!seat_join(t, job, rank, workers, bytes, ret_seat, ticket))
        return false;
    const char *address = strcmp(fabric_kind(f), "shm") == 0 ? ret_seat->shm : ret_seat->ofi;
    ret_seat->is_over =
        fabric_connect(f, address, ticket, sizeof ticket, NULL, &ret_seat->lane) < 0 ||
        !await_open(f, ret_seat);
    if (!ret_seat->is_over)
        return true;
    seat_leave(f, ret_seat);
    return false;
}

size_t seat_write(const struct seat *seat, void *ret_record)
{
    const struct record_ready ready = {.kind = RECORD_READY,
                                       .operation = RECORD_SUM,
                                       .dtype = 1,
                                       .outputs = 1,
                                       .piece = seat->piece,
                                       .word = (uint32_t)seat->round,
                                       .round = seat->round + 1,
                                       .epoch = seat->epoch,
                                       .input_bytes = seat->bytes,
                                       .output = {{.source = RECORD_SOURCE_RESULT,
                                                   .count = 1,
                                                   .offset = seat->bytes,
                                                   .bytes = seat->bytes}},
                                       .weight = RECORD_WEIGHT,
                                       .gradient = RECORD_GRADIENT};
    memcpy(ret_record, &ready, sizeof ready);
    return sizeof ready;
}

bool seat_announce(struct seat *seat)
{
    uint8_t record[FABRIC_MESSAGE_BYTES_MAX];
    size_t bytes = seat_write(seat, record);
    if (seat->is_over || fabric_send(seat->lane, record, bytes, NULL, 0) < 0)
        return false;
    seat->round++;
    return true;
}

static void end(struct seat *seats, size_t count, const struct fabric_conn *conn)
{
    for (size_t i = 0; i < count; i++)
        seats[i].is_over |= seats[i].lane == conn;
}

uint32_t seat_look(struct fabric *f, struct seat *seats, size_t count)
{
    struct fabric_event events[EVENTS];
    uint32_t words = 0;
    int got = fabric_poll(f, events, EVENTS);
    for (int i = 0; i < got; i++) {
        words += events[i].kind == FABRIC_EVENT_WORD;
        if (events[i].kind == FABRIC_EVENT_MESSAGE)
            fabric_message_done(events[i].conn, events[i].data);
        if (events[i].kind == FABRIC_EVENT_CLOSED)
            end(seats, count, events[i].conn);
    }
    return words;
}

void seat_leave(struct fabric *f, struct seat *seat)
{
    if (seat->lane && !seat->is_over)
        fabric_disconnect(seat->lane);
    fabric_flush(f);
    channel_destroy(seat->control);
    *seat = (struct seat){.is_over = true};
}
