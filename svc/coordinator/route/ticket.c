/* Tickets with which workers connect to lanes (wire W7). The coordinator creates a ticket and sends
 * it first to the lane, then to the worker. While a disconnected lane may still return, the worker
 * does not receive "lost", because no new route would follow (K56). */
#include "svc/coordinator/route/ticket.h"

#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/kept.h"
#include "svc/coordinator/session/wait.h"
#include "svc/wire/record.h"

#include <errno.h>
#include <sys/random.h>

#define TICKET_DEADLINE_NS (5 * NS_PER_S)
#define CROWD_NS (100 * NS_PER_MS)     /* pause if a job has too many open requests */
#define UNREACHED_NS (500 * NS_PER_MS) /* pause after a worker could not connect */

struct grant {
    uint64_t wait;
    uint32_t lane;
    struct record_connect connect;
};

static void send_ticket(struct wait *wait, const struct grant *grant, const struct lane *lane)
{
    const struct aggregator *a = lane->aggregator;
    peer_reply(wait->peer, wait->request, TICKET_REPLY, ticket_reply,
               .address = &MESSAGE_PART(LaneAddress, lane_address, .lane = lane->id,
                                        .aggregator = a->id, .incarnation = a->incarnation,
                                        .shm = lane->shm, .ofi = lane->ofi, .node = a->node),
               .ticket = {sizeof grant->connect, (uint8_t *)&grant->connect});
}

/* Handles the answer of the lane. If no answer has arrived and the lane may return, the worker
 * receives -EAGAIN and repeats its request (L38 of `client`). */
static void granted(struct service *s, void *data, const envelope *reply, int code,
                    const char *text)
{
    const struct grant *grant = data;
    struct wait *wait = wait_find(s, grant->wait);
    if (!wait)
        return;
    const struct lane *lane = lane_find(s, grant->lane);
    if (!lane || lane->aggregator->state == AGGREGATOR_LOST)
        peer_fail(wait->peer, wait->request, -ESTALE,
                  "lane %u has just been lost; the coordinator sends new routes for its pieces",
                  grant->lane);
    else if (lane->aggregator->state == AGGREGATOR_AWAY || (!reply && call_went_unanswered(code)))
        peer_fail(wait->peer, wait->request, -EAGAIN, "lane %u: %s", grant->lane,
                  reply ? "its aggregator is not connected" : text);
    else if (!reply)
        peer_fail(wait->peer, wait->request, code, "lane %u: %s", grant->lane, text);
    else
        send_ticket(wait, grant, lane);
    wait_destroy(wait);
}

static void ticket_expired(struct wait *wait)
{
    peer_fail(wait->peer, wait->request, -EAGAIN,
              "the aggregator did not confirm the ticket in time");
    wait_destroy(wait);
}

static void ask_lane(struct peer *p, uint64_t request, struct lane *lane)
{
    struct grant grant = {.lane = lane->id};
    uint32_t job = p->session->job->id, rank = p->session->rank;
    if (lane_connect(lane, job, rank, &grant.connect) < 0)
        return peer_fail_memory(p, request);
    grant.connect.entered = p->session->entered;
    struct wait *wait = wait_create(p, request, TICKET_DEADLINE_NS, ticket_expired, NULL);
    if (!wait)
        return;
    grant.wait = wait->id;
    if (call_send(lane->aggregator,
                  &MESSAGE(0, GRANT_REQUEST, grant_request, .lane = lane->id, .job_id = job,
                           .rank = rank,
                           .ticket = {sizeof grant.connect, (uint8_t *)&grant.connect}),
                  TICKET_DEADLINE_NS, granted, &grant, sizeof grant) == 0)
        return;
    wait_destroy(wait);
    peer_fail_memory(p, request);
}

void ticket_answer(struct peer *p, const envelope *request)
{
    uint32_t id = request->ticket_request->lane;
    if (!p->session)
        return peer_fail(p, request->id, -ENOTCONN, "this connection has no job; join a job first");
    const struct job *job = p->session->job;
    struct lane *lane = lane_find(p->service, id);
    if (!lane || !share_takes_workers(job, lane))
        return peer_fail(p, request->id, -ENOENT, "job %s has no pieces on lane %u", job->name, id);
    if (lane->aggregator->state == AGGREGATOR_LOST)
        return peer_fail(p, request->id, -ESTALE,
                         "lane %u has been lost; the coordinator sends new routes for its pieces",
                         id);
    if (lane->aggregator->state == AGGREGATOR_AWAY)
        return kept_add(p, request, TICKET_DEADLINE_NS, ticket_answer,
                        "an aggregator that is away");
    struct err err;
    if (quota_check_request(job, &err) < 0)
        return kept_add(p, request, CROWD_NS, ticket_answer, "others of their job");
    ask_lane(p, request->id, lane);
}

/* Handles a ticket request. After a failed connection the answer is delayed, because a lane that is
 * up may be unreachable for a moment. */
void ticket_handle(struct peer *p, const envelope *request)
{
    if (request->ticket_request->failures > 0)
        kept_add(p, request, UNREACHED_NS, ticket_answer, "a lane that could not be reached");
    else
        ticket_answer(p, request);
}
