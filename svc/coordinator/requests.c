/* Table of message handlers, by kind of message and role of the peer. A new kind of request needs
 * one more line in this table. */
#include "svc/coordinator/requests.h"
#include "svc/coordinator/filing/filing.h"

#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/ping.h"
#include "svc/coordinator/copies/copies.h"
#include "svc/coordinator/declare/declaration.h"
#include "svc/coordinator/declare/dry_run.h"
#include "svc/coordinator/declare/undeclare.h"
#include "svc/coordinator/fleet/farewell.h"
#include "svc/coordinator/fleet/join.h"
#include "svc/coordinator/membership/join.h"
#include "svc/coordinator/membership/lane_report.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/order/leaving.h"
#include "svc/coordinator/order/request.h"
#include "svc/coordinator/order/tenant_request.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/route/ticket.h"
#include "svc/coordinator/session/iteration_hold.h"
#include "svc/coordinator/session/late_rank.h"
#include "svc/coordinator/slots/slots.h"
#include "svc/coordinator/snapshot/snapshot.h"
#include "svc/coordinator/stage/stage.h"
#include "svc/coordinator/stopping.h"
#include "svc/coordinator/table/allow.h"
#include "svc/coordinator/timeline/timeline.h"
#include "svc/coordinator/view/explain.h"
#include "svc/coordinator/view/status.h"

#include <errno.h>

typedef void (*handler_fn)(struct peer *p, const envelope *message);

static const struct {
    int body;
    int role;
    handler_fn handle;
} handlers[] = {
    {BODY(JOIN_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, join_handle},
    {BODY(LEAVE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, leave_handle},
    {BODY(DECLARE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, declare_handle},
    {BODY(UNDECLARE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, undeclare_handle},
    {BODY(RESIZE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, members_handle_resize},
    {BODY(RESIZE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, members_handle_resize},
    {BODY(ENTER_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, entering_handle},
    {BODY(HELD_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, holding_handle},
    {BODY(STAGE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, stages_handle},
    {BODY(TICKET_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, ticket_handle},
    {BODY(LATE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, late_handle},
    {BODY(TIMELINE_TOLD), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, timelines_handle_told},
    {BODY(POOL_JOIN), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, slots_handle_join},
    {BODY(POOL_SUBMIT), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, slots_handle_submit},
    {BODY(POOL_WITHDRAW), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, slots_handle_withdraw},
    {BODY(POOL_REST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, slots_handle_rest},
    {BODY(POOL_STANDING), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, slots_handle_standing},
    {BODY(RESTING_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, slots_handle_resting},
    {BODY(POOL_REPORTS), GRADPOOL__WIRE__ROLE__ROLE_CLIENT, slots_handle_reports},
    {BODY(AGGREGATOR_JOIN), GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR, aggregator_handle_join},
    {BODY(LANE_FAILURE), GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR, aggregator_handle_failure},
    {BODY(WORKER_LOST), GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR, members_handle_lost},
    {BODY(COPY_TICKET_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR, copy_ticket_handle},
    {BODY(ROWS_WANTED), GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR, allow_handle},
    {BODY(TABLE_LOG_REPORT), GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR, table_copies_handle_report},
    {BODY(AGGREGATOR_ENDING), GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR, leaving_handle},
    {BODY(AGGREGATOR_LEAVE), GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR, aggregator_handle_leave},
    {BODY(STATUS_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, view_handle_status},
    {BODY(JOBS_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, view_handle_jobs},
    {BODY(EXPLAIN_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, explain_handle},
    {BODY(PLAN_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, plan_handle},
    {BODY(REPORT_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, report_handle},
    {BODY(MOVE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, order_handle_move},
    {BODY(DRAIN_LANES_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, order_handle_drain},
    {BODY(SNAPSHOT_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, saving_handle_request},
    {BODY(SNAPSHOT_NEXT_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, saving_handle_next},
    {BODY(SNAPSHOT_END_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, saving_handle_end},
    {BODY(TABLE_FILE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, filing_handle},
    {BODY(TIMELINE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, timelines_handle_request},
    {BODY(TIMELINE_NEXT_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, timelines_handle_next},
    {BODY(STOP_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, stopping_handle},
    {BODY(TENANT_ADD_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, tenant_handle_add},
    {BODY(TENANT_SET_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, tenant_handle_set},
    {BODY(TENANT_REVOKE_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, tenant_handle_revoke},
    {BODY(TENANTS_REQUEST), GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, tenant_handle_list},
};

/* Refuses a message. Only a request receives a Failure as its answer; if two processes answered
 * Failures with Failures, the exchange would never end (H9). */
static void refuse(struct peer *p, const envelope *message, int code, const char *text)
{
    if (channel_wants_answer(message))
        return peer_fail(p, message->id, code, "%s", text);
    log_debug("%s: message %d was dropped: %s", channel_peer(p->channel), (int)message->body_case,
              text);
}

void requests_handle(struct peer *p, const envelope *message)
{
    bool is_known = false;
    if (p->aggregator)
        liveness_heard(p->aggregator);
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++) {
        if (handlers[i].body != (int)message->body_case)
            continue;
        if (handlers[i].role == (int)p->role)
            return handlers[i].handle(p, message);
        is_known = true;
    }
    if (is_known)
        return refuse(p, message, -EPERM,
                      "this request is not allowed on a connection of this role");
    if (p->aggregator && channel_is_reply(message))
        return call_answer(p->aggregator, message);
    refuse(p, message, -EOPNOTSUPP, "gradpool serve does not answer this message");
}
