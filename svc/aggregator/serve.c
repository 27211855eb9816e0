/* Handles requests of the coordinator. Each request names a lane and is a call to this lane. The
 * call runs between two turns of the lane and has one reply. svc/lane/RULES.md: A9. */
#include "svc/aggregator/copying/copying.h"
#include "svc/aggregator/internal.h"
#include "svc/base/log.h"
#include "svc/base/text.h"
#include "svc/channel/table_spec.h"
#include "svc/lane/hear/leave.h"
#include "svc/lane/job.h"
#include "svc/lane/move/regroup.h"
#include "svc/lane/rows/copy/copy.h"
#include "svc/lane/rows/room/room.h"
#include "svc/lane/rows/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum lane_role role_of(uint32_t flags)
{
    if (!(flags & TERMS_LEADS))
        return flags & TERMS_FOLLOWS ? FOLLOWS_ROUNDS : ROLE_NONE;
    return flags & TERMS_FOLLOWS ? LEADS_ROUNDS : LEADS_SETS;
}

static int read_spec(const Gradpool__Wire__PieceSpec *spec, struct terms *terms,
                     struct lane_piece *ret_piece)
{
    int error = terms_read(spec->terms.data, spec->terms.len, terms);
    if (error < 0)
        return error;
    uint32_t flags = terms->flags & (TERMS_FOLLOWS | TERMS_LEADS);
    *ret_piece = (struct lane_piece){.id = spec->piece,
                                     .task = spec->task,
                                     .dtype = spec->dtype,
                                     .elements = spec->elements,
                                     .tensor = spec->tensor,
                                     .continues = spec->continues,
                                     .holder = spec->holder,
                                     .committed = spec->committed,
                                     .terms = {.quorum = terms->quorum,
                                               .bound = terms->bound,
                                               .role = role_of(flags),
                                               .measures = terms->flags & TERMS_MEASURES,
                                               .rule = terms->rule,
                                               .lag = terms->lag},
                                     .ranks = terms_are_for_all(terms) ? NULL : terms->ranks};
    return 0;
}

struct placing {
    const Gradpool__Wire__PlaceRequest *request;
    struct lane_piece *pieces;
    struct terms *terms;              /* terms of each piece, to which `pieces` points */
    struct backup_terms backup;       /* backup terms of the job, to which `pieces` points */
    uint64_t held_bytes, limit_bytes; /* bytes that the lane has allocated; limit of the lane */
    uint64_t job_bytes;               /* bytes that the job used before the request */
    const char *ring;                 /* ring of the copy that is placed; NULL: no copy is placed */
    /* reason why the cgroup has too little memory; "": it has enough */
    char why_not[ERR_TEXT_BYTES];
};

static int read_pieces(struct placing *placing)
{
    size_t count = placing->request->n_pieces;
    int error = 0;
    placing->pieces = calloc(count + 1, sizeof *placing->pieces);
    placing->terms = calloc(count + 1, sizeof *placing->terms);
    if (!placing->pieces || !placing->terms)
        return -ENOMEM;
    error = backup_terms_read(placing->request->backup.data, placing->request->backup.len,
                              &placing->backup);
    for (size_t i = 0; error == 0 && i < count; i++) {
        error = read_spec(placing->request->pieces[i], &placing->terms[i], &placing->pieces[i]);
        placing->pieces[i].backup = placing->backup.rule ? &placing->backup : NULL;
    }
    return error;
}

static int set_limits(struct lane *lane, void *context)
{
    const struct placing *placing = context;
    lane_set_memory_limit(lane, placing->request->memory_bytes_max);
    lane_set_job_memory_limit(lane, placing->request->job_memory_bytes_max);
    return 0;
}

/* Places the shards of a table, in a job that may have no pieces. */
static int place_table(struct lane *lane, const struct placing *placing)
{
    const Gradpool__Wire__PlaceRequest *request = placing->request;
    const Gradpool__Wire__TablePlace *table = request->table;
    struct lane_shard_spec *shards = calloc(table->n_shards + 1, sizeof *shards);
    struct table_terms terms =
        table->spec ? table_spec_terms(table->spec) : (struct table_terms){0};
    struct lane_table_spec spec = {.id = table->table,
                                   .name = table->spec ? table->spec->name : "",
                                   .terms = &terms,
                                   .salt = table->salt,
                                   .rows_bytes_max = request->table_bytes_max};
    if (!shards)
        return -ENOMEM;
    for (size_t i = 0; i < table->n_shards; i++)
        shards[i] = (struct lane_shard_spec){table->shards[i], request->epoch};
    const struct lane_copy_spec copy = {request->copied_lane, request->copy, placing->ring};
    int error = lane_place(lane, request->job_id, request->job, request->workers, request->epoch,
                           false, NULL, 0);
    if (error == 0 && placing->ring)
        error = lane_place_copy(lane, request->job_id, &copy, &spec, shards, table->n_shards);
    else if (error == 0)
        error = lane_place_table(lane, request->job_id, &spec, shards, table->n_shards);
    free(shards);
    return error;
}

static int place(struct lane *lane, void *context)
{
    struct placing *placing = context;
    const Gradpool__Wire__PlaceRequest *request = placing->request;
    size_t count = request->n_pieces;
    placing->job_bytes = lane_job_memory(lane, request->job_id);
    int error = request->table ? place_table(lane, placing) : 0;
    if (count > 0 && request->regroups)
        error = lane_regroup(lane, request->job_id, request->epoch, placing->pieces, count);
    else if (count > 0) /* a request without pieces only sets limits */
        error = lane_place(lane, request->job_id, request->job, request->workers, request->epoch,
                           request->recovering, placing->pieces, count);
    lane_allow_rows(lane, request->job_id, request->table_bytes_max);
    if (request->is_elastic)
        lane_set_elastic(lane, request->job_id);
    lane_set_lent_limits(lane, request->job_id,
                         &(struct lane_lent){.bytes_max = request->lent_bytes_max,
                                             .tenant_bytes_max = request->tenant_lent_bytes_max,
                                             .memory_bytes_max = request->job_memory_bytes_max,
                                             .has_others = request->has_others,
                                             .regions_max = request->regions_max,
                                             .tenant_regions_max = request->tenant_regions_max,
                                             .tenant = request->tenant});
    lane_memory(lane, &placing->held_bytes, &placing->limit_bytes);
    return error;
}

static int place_prepared(struct aggregator *a, struct placing *placing)
{
    const Gradpool__Wire__PlaceRequest *request = placing->request;
    struct lane_thread *thread = serve_find_lane(a, request->lane);
    int error = thread ? read_pieces(placing) : -ENOENT;
    if (error == 0 && request->copy > 0)
        error = request->table ? copying_lend(a, request, &placing->ring) : -EINVAL;
    if (error < 0)
        return error;
    lane_thread_call(thread, set_limits, placing);
    error = memory_prepare(thread,
                           &(struct memory_coming){request->job_id, request->workers,
                                                   placing->pieces, request->n_pieces},
                           placing->why_not)
                ?: lane_thread_call(thread, place, placing);
    memory_forget(thread);
    return error;
}

static int serve_place(struct aggregator *a, uint64_t id,
                       const Gradpool__Wire__PlaceRequest *request)
{
    struct placing placing = {.request = request};
    char text[ERR_TEXT_BYTES], held[32], limit[32];
    int error = place_prepared(a, &placing);
    bool is_job = error == -EDQUOT;
    free(placing.pieces);
    free(placing.terms);
    if (error == 0 && request->awaits_workers)
        return ahead_await(a, id, request->lane, request->job_id);
    if (!is_job && error != -ENOSPC)
        return serve_reply(a, id, error);
    const char *what = request->table ? "shards" : "pieces";
    size_t count = request->table ? request->table->n_shards : request->n_pieces;
    if (placing.why_not[0]) {
        snprintf(text, sizeof text, "%zu more %s need %.400s", count, what, placing.why_not);
        return serve_reply_failure(a, id, error, text);
    }
    snprintf(text, sizeof text,
             "lane %u has no memory for %zu more %s: it holds %s for %s and may hold %s; the "
             "operator can raise --%s-memory-max of gradpool serve",
             request->lane, count, what,
             text_bytes(is_job ? placing.job_bytes : placing.held_bytes, held, sizeof held),
             is_job ? "this job" : "its jobs",
             text_bytes(is_job ? request->job_memory_bytes_max : placing.limit_bytes, limit,
                        sizeof limit),
             is_job ? "job" : "lane");
    return serve_reply_failure(a, id, error, text);
}

static int drop(struct lane *lane, void *context)
{
    const Gradpool__Wire__DropRequest *request = context;
    lane_drop(lane, request->job_id, request->pieces, request->n_pieces);
    return 0;
}

static int serve_drop(struct aggregator *a, uint64_t id, Gradpool__Wire__DropRequest *request)
{
    int error = serve_reply(a, id, serve_call(a, request->lane, drop, request));
    if (error >= 0)
        error = moving_recheck(a);
    return error < 0 ? error : keeping_copied(a);
}

static int grant(struct lane *lane, void *context) { return lane_grant(lane, context); }

static int serve_grant(struct aggregator *a, const Gradpool__Wire__GrantRequest *request)
{
    struct record_connect ticket;
    if (request->ticket.len != sizeof ticket)
        return -EINVAL;
    memcpy(&ticket, request->ticket.data, sizeof ticket);
    return serve_call(a, request->lane, grant, &ticket);
}

static int leave(struct lane *lane, void *context)
{
    const Gradpool__Wire__LeftRequest *request = context;
    uint64_t left[RECORD_MISSING_WORDS];
    memcpy(left, request->left.data, sizeof left);
    lane_leave(lane, request->job_id, left);
    return 0;
}

static int serve_left(struct aggregator *a, Gradpool__Wire__LeftRequest *request)
{
    if (request->left.len != RECORD_MISSING_WORDS * sizeof(uint64_t))
        return -EINVAL;
    return serve_call(a, request->lane, leave, request);
}

static int serve_stats(struct aggregator *a, uint64_t id,
                       const Gradpool__Wire__StatsRequest *request)
{
    Gradpool__Wire__StatsReply *stats = stats_build(a, request);
    if (!stats)
        return serve_reply(a, id, -ENOMEM);
    int error = channel_send(a->channel, &ENVELOPE(id, STATS_REPLY, stats_reply, stats));
    gradpool__wire__stats_reply__free_unpacked(stats, NULL);
    return error;
}

static int take_turn(struct lane *lane, void *context) { return 0; }

/* Answers a ping. A lane that hangs also blocks this thread, so that no further request is answered
 * (A24). A sleeping lane is not woken. */
static int serve_ping(struct aggregator *a, uint64_t id)
{
    for (size_t i = 0; i < a->lanes_count; i++)
        if (!lane_thread_is_idle(a->lanes[i]))
            lane_thread_call(a->lanes[i], take_turn, NULL);
    return serve_done(a, id);
}

static int serve_drain(struct aggregator *a, const envelope *request)
{
    const char *loses = request->drain_request->loses;
    if (*loses)
        log_warn(
            "this aggregator is drained, but some state has no other place and is lost: %.900s",
            loses);
    else
        log_info("the coordinator drains this aggregator: its tasks move to other lanes");
    a->is_draining = true;
    return serve_done(a, request->id);
}

/* Handles an unknown message: a request is refused, all others are dropped (H9). */
static int refuse(struct aggregator *a, const envelope *message)
{
    if (!channel_wants_answer(message)) {
        log_debug("message %d of the coordinator was dropped", (int)message->body_case);
        return 0;
    }
    return serve_reply_failure(
        a, message->id, -EOPNOTSUPP,
        "an aggregator does not know this request; install one version on all hosts");
}

int serve_request(struct aggregator *a, const envelope *request)
{
    switch (request->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_PLACE_REQUEST:
        return serve_place(a, request->id, request->place_request);
    case GRADPOOL__WIRE__ENVELOPE__BODY_DROP_REQUEST:
        return serve_drop(a, request->id, request->drop_request);
    case GRADPOOL__WIRE__ENVELOPE__BODY_GRANT_REQUEST:
        return serve_reply(a, request->id, serve_grant(a, request->grant_request));
    case GRADPOOL__WIRE__ENVELOPE__BODY_LEFT_REQUEST:
        return serve_reply(a, request->id, serve_left(a, request->left_request));
    case GRADPOOL__WIRE__ENVELOPE__BODY_LANE_STAGE_REQUEST:
        return staging_serve(a, request->id, request->lane_stage_request);
    case GRADPOOL__WIRE__ENVELOPE__BODY_STATS_REQUEST:
        return serve_stats(a, request->id, request->stats_request);
    case GRADPOOL__WIRE__ENVELOPE__BODY_PING_REQUEST: return serve_ping(a, request->id);
    case GRADPOOL__WIRE__ENVELOPE__BODY_TIMELINE_TAKE:
        return timeline_serve(a, request->id, request->timeline_take);
    case GRADPOOL__WIRE__ENVELOPE__BODY_DRAIN_REQUEST: return serve_drain(a, request);
    default:
        if (keeping_knows(request))
            return keeping_serve(a, request);
        if (copying_knows(request))
            return copying_serve(a, request);
        if (bulk_knows(request))
            return bulk_serve(a, request);
        return moving_knows(request) ? moving_serve(a, request) : refuse(a, request);
    }
}
