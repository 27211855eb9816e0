/* Tickets with which replica holders connect to lanes. Workers' tickets are in route/ticket.c.
 * Here, request and answer are independent messages on an aggregator's connection. A holder repeats
 * its request until the answer is final. */
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/wire/record.h"

#include <errno.h>
#include <sys/random.h>

/* number of consecutive failed connections after which another holder is chosen; these attempts
 * take at least three seconds */
#define FAILURES_MOST 8

struct copy_ticket_asked {
    uint32_t holder, job, lane;
    struct record_connect connect;
};

static void tell(struct aggregator *holder, uint32_t job, uint32_t lane, int code,
                 const struct copy_ticket_asked *granted)
{
    const struct lane *its = granted ? lane_find(holder->service, lane) : NULL;
    WIRE(CopyTicket)
    ticket = MESSAGE_PART(CopyTicket, copy_ticket, .job_id = job, .lane = lane, .code = code);
    if (its) {
        ticket.shm = its->shm;
        ticket.ofi = its->ofi;
        ticket.ticket =
            (ProtobufCBinaryData){sizeof granted->connect, (uint8_t *)&granted->connect};
    }
    if (holder->peer)
        peer_send(holder->peer, &ENVELOPE(0, COPY_TICKET, copy_ticket, &ticket));
}

/* Sends the ticket, or -EAGAIN: the holder then repeats its request. */
static void granted(struct service *s, void *data, const envelope *reply, int code,
                    const char *text)
{
    const struct copy_ticket_asked *asked = data;
    struct aggregator *holder = aggregator_find(s, asked->holder);
    if (holder)
        tell(holder, asked->job, asked->lane, reply ? 0 : -EAGAIN, reply ? asked : NULL);
}

static int ask_lane(struct aggregator *holder, struct lane *lane, uint32_t job)
{
    struct copy_ticket_asked asked = {.holder = holder->id, .job = job, .lane = lane->id};
    uint32_t rank = RECORD_HOLDER | holder->id;
    int error = lane_connect(lane, job, rank, &asked.connect);
    if (error < 0)
        return error;
    return lane_call(lane, granted, &asked, sizeof asked, GRANT_REQUEST, grant_request,
                     .job_id = job, .rank = rank,
                     .ticket = {sizeof asked.connect, (uint8_t *)&asked.connect});
}

/* Returns the code of the answer. 0: the ticket is granted. -ENOENT: the holder has no copies of
 * the job, and may drop its data. -ESTALE: the holder has no copies of this lane's pieces, or
 * another lane has replaced this lane. */
static int answer_of(const struct aggregator *holder, const struct job *job,
                     const struct lane *lane)
{
    if (!job || !keeping_has(holder, job, NULL))
        return -ENOENT;
    if (!lane || lane->aggregator->state == AGGREGATOR_LOST || job->failure ||
        !keeping_has(holder, job, lane))
        return -ESTALE;
    return lane->aggregator->state == AGGREGATOR_AWAY ? -EAGAIN : 0;
}

void copy_ticket_handle(struct peer *p, const envelope *message)
{
    const WIRE(CopyTicketRequest) *request = message->copy_ticket_request;
    struct aggregator *holder = p->aggregator;
    struct job *job = jobs_find_id(p->service, request->job_id);
    struct lane *lane = lane_find(p->service, request->lane);
    if (!holder)
        return;
    int code = answer_of(holder, job, lane);
    if (code == 0 && request->failures >= FAILURES_MOST) {
        keeping_unreachable(holder, job, lane);
        code = -ESTALE;
    }
    if (code == 0 && ask_lane(holder, lane, job->id) == 0)
        return;
    tell(holder, request->job_id, request->lane, code ? code : -EAGAIN, NULL);
}
