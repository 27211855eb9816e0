/* All listeners of the hooks, in the order of their calls. Owns no state and makes no decisions. */
#include "svc/coordinator/hooks.h"
#include "svc/coordinator/filing/filing.h"

#include "svc/coordinator/aggregator/ping.h"
#include "svc/coordinator/copies/copies.h"
#include "svc/coordinator/declare/declaration.h"
#include "svc/coordinator/declare/tables.h"
#include "svc/coordinator/fleet/fleet.h"
#include "svc/coordinator/growth/exploring.h"
#include "svc/coordinator/growth/scaling.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/membership/join.h"
#include "svc/coordinator/membership/lane_report.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/migration/migration.h"
#include "svc/coordinator/order/leaving.h"
#include "svc/coordinator/placement/history.h"
#include "svc/coordinator/recovery/recovery.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/requests.h"
#include "svc/coordinator/route/tell_lane.h"
#include "svc/coordinator/route/ticket.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/host_silence.h"
#include "svc/coordinator/session/iteration_hold.h"
#include "svc/coordinator/session/kept.h"
#include "svc/coordinator/session/session.h"
#include "svc/coordinator/session/wait.h"
#include "svc/coordinator/slots/slots.h"
#include "svc/coordinator/snapshot/snapshot.h"
#include "svc/coordinator/stage/stage.h"
#include "svc/coordinator/stopping.h"
#include "svc/coordinator/timeline/timeline.h"
#include "svc/coordinator/view/display.h"
#include "svc/coordinator/view/status.h"

/* --- connections --- */

static void peer_is_read_out(struct peer *p) { session_process_ended(p->session); }

static void peer_ends(struct peer *p)
{
    waits_cancel(p);
    saving_peer_gone(p);
    filings_peer_gone(p);
    timelines_peer_gone(p);
    slots_peer_gone(p);
}

static void connection_ended(struct aggregator *a, struct session *session, enum channel_end end)
{
    if (a)
        aggregator_away(a, aggregator_grace_ns(a));
    if (session)
        session_away(session, SESSION_AWAY_NS, end);
}

/* --- aggregators --- */

static void aggregator_joined(struct aggregator *a, struct slot *slot)
{
    struct service *s = a->service;
    scaling_joined(a, slot);
    recovery_place_stranded(s);
    leaving_check_all(s);
    kept_check(s, declare_handle);
}

static void aggregator_is_back(struct aggregator *a, const WIRE(AggregatorJoin) * join)
{
    struct service *s = a->service;
    recovery_reconcile(a, join);
    recovery_place_stranded(s);
    keeping_aggregator_back(a);
    fleet_check(s);
    leaving_check_all(s);
    kept_check(s, declare_handle);
    kept_check(s, ticket_answer);
}

static void aggregator_is_away(struct aggregator *a)
{
    moving_aggregator_away(a);
    regrouping_aggregator_gone(a);
    saving_aggregator_gone(a);
}

static void aggregator_is_lost(struct aggregator *a)
{
    struct service *s = a->service;
    leaving_stop(a);
    display_wake(s);
    fleet_check(s);
    recovery_aggregator_lost(a);
    kept_check(s, ticket_answer);
    service_check_drained(s);
}

static void aggregator_is_stopping(struct aggregator *a) { keeping_check_all(a->service); }

static bool aggregator_is_needed(const struct aggregator *a)
{
    list_for_each_entry (const struct job, job, &a->service->jobs, link)
        if (keeping_has(a, job, NULL))
            return true;
    return false;
}

static void process_ended(struct service *s)
{
    kept_check(s, declare_handle);
    service_check_drained(s);
}

/* --- jobs --- */

static void job_is_over(struct job *job)
{
    struct service *s = job->service;
    table_copies_end(job);
    keeping_end(job);
    slots_job_ended(job);
    for (size_t i = 0; i < job->shares_count; i++)
        telling_drop(job->shares[i].lane, job->id, NULL, 0);
    display_wake(s);
    /* a join may be waiting for the end of this job, because both have the same name */
    kept_check_soon(s, join_handle);
    /* a declare may be waiting for the lanes that this job has used */
    kept_check_soon(s, declare_handle);
}

static void tensors_are_settled(struct job *job)
{
    declare_check_waits(job);
    tables_check_waits(job);
    stages_check(job);
    table_copies_check(job);
}

/* Continues joins that wait because a former rank is still leaving. */
static void ranks_have_changed(struct service *s) { kept_check(s, join_handle); }

static void job_ends(struct job *job)
{
    moving_end_job(job);
    saving_give_way(job, "the job has ended");
    holding_job_ends(job);
    regrouping_end(job);
    lane_said_forget(job);
    exploring_free(job->growth->exploring);
    stages_free(job);
    table_copies_free(job);
    job_tables_free(job);
    sessions_destroy(job);
}

const struct peer_hooks hooks_of_peers = {
    .opened = silence_watch,
    .message_came = requests_handle,
    .answer_is_ready = view_answer,
    .is_read_out = peer_is_read_out,
    .ends = peer_ends,
    .connection_ended = connection_ended,
};

const struct aggregator_hooks hooks_of_aggregators = {
    .joined = aggregator_joined,
    .is_back = aggregator_is_back,
    .is_away = aggregator_is_away,
    .is_cut_off = fleet_kill,
    .is_lost = aggregator_is_lost,
    .ends = leaving_stop,
    .is_stopping = aggregator_is_stopping,
    .is_needed = aggregator_is_needed,
    .process_ended = process_ended,
    .farewell_is_over = service_check_drained,
    .look_is_over = view_look_over,
};

const struct job_hooks hooks_of_jobs = {
    .is_ending = profiles_keep,
    .is_over = job_is_over,
    .ends = job_ends,
    .tensors_are_settled = tensors_are_settled,
    .may_regroup = regrouping_check,
    .ranks_have_changed = ranks_have_changed,
    .session_is_lost = members_leave,
    .rank_has_left = stages_rank_left,
    .may_join = slots_may_join,
    .may_resize = slots_may_resize,
    .piece_moves = moving_has,
    .keeps_what_moves = moving_has_holder,
    .has_copies_at = table_copies_are_at,
    .table_copies = table_copies_state,
    .holder_is_unfit = moving_holder_unfit,
};

const struct service_hooks hooks_of_service = {
    .view_has_changed = display_wake,
    .training_may_begin = measuring_wake,
    .tenant_is_revoked = slots_tenant_revoked,
    .gives_up = service_give_up,
};
