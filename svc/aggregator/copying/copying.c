/* Copies of tables: rings of this process for owners in other processes, copies on lanes of this
 * process, and logs of lanes of this process (svc/lane/rows/log, svc/lane/rows/copy). Handles
 * requests of the coordinator, and passes reports on between lanes, replica holder and coordinator.
 * svc/lane/RULES.md: A128, A130, A131. */
#include "svc/aggregator/copying/copying.h"
#include "svc/lane/rows/copy/copy.h"
#include "svc/lane/rows/log/row_log.h"
#include "svc/replica/ring.h"
#include "svc/wire/ranks.h"

#include <errno.h>
#include <string.h>

/* ---- copies on lanes of this process ---- */

static int copying_drop(struct lane *lane, void *context)
{
    const struct holder_ring *ring = context;
    lane_drop_copy(lane, ring->job, ring->lane);
    return 0;
}

static int copying_drop_all(struct lane *lane, void *context)
{
    lane_drop_copies(lane, *(const uint32_t *)context);
    return 0;
}

static void copying_on_lanes(struct aggregator *a, int (*call)(struct lane *lane, void *context),
                             void *context)
{
    for (size_t i = 0; i < a->lanes_count; i++)
        lane_thread_call(a->lanes[i], call, context);
}

void copying_end(struct aggregator *a, uint32_t job, uint32_t owner)
{
    struct holder_ring ring = {.job = job, .lane = owner};
    copying_on_lanes(a, copying_drop, &ring);
    if (a->holder)
        holder_end_ring(a->holder, job, owner);
}

void copying_end_job(struct aggregator *a, uint32_t job)
{
    copying_on_lanes(a, copying_drop_all, &job);
}

int copying_lend(struct aggregator *a, const Gradpool__Wire__PlaceRequest *request,
                 const char **ret_ring)
{
    const struct holder_ring ring = {request->job_id, request->copied_lane, request->copy};
    int error = keeping_make_holder(a);
    if (error < 0)
        return error;
    /* a lane may still read the ring of an earlier copy, so this copy is dropped first */
    if (!holder_has_ring(a->holder, &ring))
        copying_end(a, ring.job, ring.lane);
    return holder_lend_ring(a->holder, &ring, request->job, LOG_RING_BYTES, ret_ring);
}

static int copying_promote(struct lane *lane, void *context)
{
    const Gradpool__Wire__TablePromote *request = context;
    const Gradpool__Wire__LaneStageRequest *stage = request->stage;
    uint64_t ranks[RANKS_WORDS];
    struct lane_promotion promotion = {.owner = request->owner,
                                       .copy = request->copy,
                                       .group = request->group,
                                       .epoch = request->epoch};
    if (stage && stage->ranks.len != sizeof ranks)
        return -EINVAL;
    if (stage) {
        memcpy(ranks, stage->ranks.data, sizeof ranks);
        promotion.stage = (struct lane_stage){.number = stage->number,
                                              .ranks = ranks,
                                              .first_clock = stage->first_clock,
                                              .consistency = stage->consistency,
                                              .staleness = stage->staleness};
    }
    return lane_promote_copy(lane, request->job_id, &promotion);
}

/* The ring is withdrawn from the lost owner first, so that no further block lands after the lane
 * has applied the last block (J8). */
static int copying_serve_promote(struct aggregator *a, Gradpool__Wire__TablePromote *request)
{
    int error = a->holder ? holder_withdraw_ring(a->holder, request->job_id, request->owner) : 0;
    if (error == 0)
        error = serve_call(a, request->lane, copying_promote, request);
    if (error == 0 && a->holder)
        holder_end_ring(a->holder, request->job_id, request->owner);
    return error;
}

/* ---- logs of lanes of this process ---- */

static int copying_set_log(struct lane *lane, void *context)
{
    const Gradpool__Wire__TableLog *request = context;
    const struct lane_log_spec spec = {.holder = request->holder,
                                       .copy = request->copy,
                                       .failed = request->failed,
                                       .failed_count = request->n_failed};
    if (request->copy)
        return lane_begin_log(lane, request->job_id, &spec);
    lane_end_log(lane, request->job_id);
    return 0;
}

/* ---- requests ---- */

bool copying_knows(const envelope *request)
{
    switch (request->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_LOG:
    case GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_COPY_END:
    case GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_PROMOTE: return true;
    default: return false;
    }
}

int copying_serve(struct aggregator *a, const envelope *request)
{
    const Gradpool__Wire__TableCopyEnd *end = request->table_copy_end;
    switch (request->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_LOG:
        return serve_reply(
            a, request->id,
            serve_call(a, request->table_log->lane, copying_set_log, request->table_log));
    case GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_COPY_END:
        copying_end(a, end->job_id, end->owner);
        return serve_done(a, request->id);
    default: return serve_reply(a, request->id, copying_serve_promote(a, request->table_promote));
    }
}

/* ---- reports ---- */

struct copying_reports {
    struct aggregator *a;
    uint32_t lane;
    bool again;
    int error;
};

static void copying_send(struct copying_reports *r, uint32_t job, uint32_t copy, bool is_whole)
{
    if (r->a->channel && r->error >= 0)
        r->error = serve_answer(r->a, 0, TABLE_LOG_REPORT, table_log_report, .lane = r->lane,
                                .job_id = job, .copy = copy, .is_whole = is_whole);
}

static void copying_report_log(void *context, const struct lane_log_report *report)
{
    copying_send(context, report->job, report->copy, report->is_whole);
}

/* Runs between two turns of the lane. The call to the holder only posts a record, and does not
 * block. */
static void copying_report_copy(void *context, const struct lane_copy_report *report)
{
    struct copying_reports *r = context;
    const struct holder_ring ring = {report->job, report->owner, report->copy};
    if (report->is_damaged)
        copying_send(r, report->job, report->copy, false);
    else if (r->a->holder)
        holder_taken(r->a->holder, &ring, report->position);
}

/* Reports about logs are repeated after each join, so none is lost while the coordinator is
 * away. */
static int copying_look_at(struct lane *lane, void *context)
{
    struct copying_reports *r = context;
    if (r->a->channel)
        lane_each_log_report(lane, r->again, copying_report_log, r);
    lane_each_copy_report(lane, r->again, copying_report_copy, r);
    return 0;
}

int copying_look(struct aggregator *a, bool again)
{
    struct copying_reports reports = {.a = a, .again = again};
    for (size_t i = 0; i < a->lanes_count; i++) {
        reports.lane = a->lane_ids[i];
        lane_thread_call(a->lanes[i], copying_look_at, &reports);
    }
    return reports.error;
}

struct copying_logged {
    struct holder_ring ring;
    uint64_t position;
};

static int copying_take_logged(struct lane *lane, void *context)
{
    const struct copying_logged *logged = context;
    lane_copy_logged(lane, logged->ring.job, logged->ring.lane, logged->ring.copy,
                     logged->position);
    return 0;
}

void copying_pass_on(struct aggregator *a)
{
    struct copying_logged logged;
    while (a->holder && holder_next_logged(a->holder, &logged.ring, &logged.position))
        copying_on_lanes(a, copying_take_logged, &logged);
}
