/* Messages to lanes about pieces. A piece is PIECE_ASKED between request and answer. The answer is
 * ignored if the piece has moved in the meantime. */
#include "svc/coordinator/route/tell_lane.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/session/goodbye.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct placed {
    uint32_t job, lane, epoch;
    bool recovering, regroups;
    size_t count;
    uint32_t pieces[];
};

static bool is_of(const struct piece *piece, const void *context)
{
    const struct placed *placed = context;
    return piece->epoch == placed->epoch && piece->recovering && piece->state == PIECE_READY;
}

static void fail_tensor(struct tensor *tensor, int code, const char *why)
{
    char text[2 * ERR_TEXT_BYTES];
    snprintf(text, sizeof text, "tensor '%s' of job %s: %s", tensor->name, tensor->job->name, why);
    tensor_fail(tensor, NULL, code, text);
}

/* Returns whether the pieces are sent again later. -EAGAIN: an earlier placement of these pieces is
 * still in progress on the lane. */
static bool is_told_again(int code) { return call_went_unanswered(code) || code == -EAGAIN; }

/* Sets the state of the pieces after an answer. Without an answer the pieces become PIECE_PLACED
 * again. Pieces in this state are sent to the same lane when the lane returns, or to another lane
 * if the lane is lost. */
static void settle(struct job *job, const struct placed *placed, int code, const char *text)
{
    for (size_t i = 0; i < placed->count; i++) {
        struct tensor *tensor;
        struct piece *piece = jobs_piece(job, placed->pieces[i], &tensor);
        if (!piece || !piece->lane || piece->lane->id != placed->lane ||
            piece->epoch != placed->epoch || piece->state != PIECE_ASKED)
            continue; /* the piece has moved in the meantime */
        piece->state = code < 0 ? PIECE_PLACED : PIECE_READY;
        piece->regroups &= code < 0;
        if (code < 0 && !is_told_again(code))
            fail_tensor(tensor, code, text);
    }
}

static void lane_answered(struct service *s, void *data, const envelope *reply, int code,
                          const char *text)
{
    const struct placed *placed = data;
    struct job *job = jobs_find_id(s, placed->job);
    if (!job)
        return;
    if (!reply)
        log_warn("job %s: lane %u did not accept %zu pieces: %s; see the log of its aggregator",
                 job->name, placed->lane, placed->count, text);
    settle(job, placed, reply ? 0 : code, text);
    if (!reply && (code == -ETIMEDOUT || code == -EAGAIN))
        service_retry_later(s);
    leavers_changed(job);
    keeping_check(job);
    if (reply && placed->recovering)
        tensors_send_routes(job, NULL, is_of, placed);
    s->on->job->tensors_are_settled(job);
    s->on->job->may_regroup(job);
}

WIRE(PieceSpec)
telling_spec(const struct tensor *tensor, const struct piece *piece, struct terms *terms)
{
    const struct terms *told = members_terms(tensor, terms);
    return MESSAGE_PART(PieceSpec, piece_spec, .piece = piece->id, .task = piece->task,
                        .dtype = tensor->dtype, .elements = piece->elements, .tensor = tensor->name,
                        .continues = piece != tensor->pieces, .holder = piece->keeping.holder,
                        .committed = tensor->committed,
                        .terms = {terms_bytes(told), (uint8_t *)told});
}

/* Collects the pieces of the next message: PIECE_PLACED pieces of one lane with equal flags. */
static size_t gather(struct job *job, struct placed *placed, struct terms *terms,
                     WIRE(PieceSpec) * specs)
{
    struct lane *lane = NULL;
    placed->count = 0;
    job_each_piece (piece, tensor, job) {
        if (piece->state != PIECE_PLACED || tensor->failure ||
            piece->lane->aggregator->state != AGGREGATOR_UP)
            continue;
        if (!lane) {
            lane = piece->lane;
            *placed = (struct placed){.job = job->id,
                                      .lane = lane->id,
                                      .epoch = piece->epoch,
                                      .recovering = piece->recovering,
                                      .regroups = piece->regroups};
        }
        if (piece->lane != lane || piece->epoch != placed->epoch ||
            piece->recovering != placed->recovering || piece->regroups != placed->regroups ||
            placed->count == MESSAGE_PIECES_MAX)
            continue;
        specs[placed->count] = telling_spec(tensor, piece, &terms[placed->count]);
        placed->pieces[placed->count++] = piece->id;
        piece->state = PIECE_ASKED;
    }
    return placed->count;
}

/* Returns the backup terms of the job as bytes, which the job owns. Returns no bytes for a job
 * without backup workers. */
static ProtobufCBinaryData telling_backup(const struct job *job)
{
    const struct backup_terms *terms = &job->terms->backup;
    return (ProtobufCBinaryData){.data = (uint8_t *)terms,
                                 .len = terms->rule == BACKUP_TERMS_ALL ? 0 : sizeof *terms};
}

/* Returns a request without pieces, with the limits of the job and its tenant. */
static WIRE(PlaceRequest)
    telling_request(const struct job *job, const struct lane *lane, uint32_t epoch)
{
    const uint64_t *most = job->tenant->limits.most;
    const struct row_allowance *rows = job_allowance(job, lane->id);
    return MESSAGE_PART(
        PlaceRequest, place_request, .lane = lane->id, .job_id = job->id, .job = job->name,
        .workers = job->workers, .epoch = epoch, .is_elastic = job->terms->is_elastic,
        .lent_bytes_max = most[LIMIT_JOB_LENT],
        .memory_bytes_max = job->service->options->limits.most[LIMIT_LANE_MEMORY],
        .regions_max = (uint32_t)most[LIMIT_JOB_REGIONS],
        .tenant_regions_max = (uint32_t)most[LIMIT_TENANT_REGIONS],
        .job_memory_bytes_max = most[LIMIT_JOB_MEMORY],
        .tenant_lent_bytes_max = most[LIMIT_TENANT_LENT],
        .has_others = !tenants_has_one(job->service), .table_bytes_max = rows ? rows->bytes : 0,
        .tenant = job->tenant->key.tenant, .backup = telling_backup(job));
}

int telling_ask(struct job *job, struct lane *lane, uint32_t epoch, enum place_how how,
                WIRE(PieceSpec) * specs, size_t count, call_done_fn done, const void *data,
                size_t data_bytes)
{
    WIRE(PlaceRequest) request = telling_request(job, lane, epoch);
    _cleanup_free_ WIRE(PieceSpec) **list = calloc(count + 1, sizeof *list);
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        list[i] = &specs[i];
    request.recovering = how != PLACE_NEW;
    request.regroups = how == PLACE_REGROUPED;
    request.awaits_workers = how == PLACE_AHEAD;
    request.pieces = list;
    request.n_pieces = count;
    return call_send(lane->aggregator, &ENVELOPE(0, PLACE_REQUEST, place_request, &request),
                     CALL_DEADLINE_NS, done, data, data_bytes);
}

int telling_ask_table(struct job *job, struct lane *lane, uint32_t epoch, WIRE(TablePlace) * table,
                      call_done_fn done, const void *data, size_t data_bytes)
{
    WIRE(PlaceRequest) request = telling_request(job, lane, epoch);
    request.table = table;
    return call_send(lane->aggregator, &ENVELOPE(0, PLACE_REQUEST, place_request, &request),
                     CALL_DEADLINE_NS, done, data, data_bytes);
}

int telling_ask_copy(struct job *job, struct lane *lane, uint32_t epoch, WIRE(TablePlace) * table,
                     uint32_t owner, uint32_t copy, call_done_fn done, const void *data,
                     size_t data_bytes)
{
    WIRE(PlaceRequest) request = telling_request(job, lane, epoch);
    request.table = table;
    request.copied_lane = owner;
    request.copy = copy;
    return call_send(lane->aggregator, &ENVELOPE(0, PLACE_REQUEST, place_request, &request),
                     CALL_DEADLINE_NS, done, data, data_bytes);
}

static void ask_lane(struct job *job, const struct placed *placed, WIRE(PieceSpec) * specs)
{
    struct lane *lane = lane_find(job->service, placed->lane);
    enum place_how how = placed->regroups     ? PLACE_REGROUPED
                         : placed->recovering ? PLACE_RECOVERING
                                              : PLACE_NEW;
    size_t bytes = sizeof *placed + placed->count * sizeof placed->pieces[0];
    if (telling_ask(job, lane, placed->epoch, how, specs, placed->count, lane_answered, placed,
                    bytes) < 0)
        settle(job, placed, -ENOMEM,
               "gradpool serve has no memory for a request to a lane; raise its memory limit");
}

void telling_place(struct job *job)
{
    size_t pieces = job->index->pieces_count;
    size_t room = pieces < MESSAGE_PIECES_MAX ? pieces : MESSAGE_PIECES_MAX;
    _cleanup_free_ WIRE(PieceSpec) *specs = calloc(room + 1, sizeof *specs);
    _cleanup_free_ struct terms *terms = calloc(room + 1, sizeof *terms);
    _cleanup_free_ struct placed *placed =
        calloc(1, sizeof *placed + room * sizeof placed->pieces[0]);
    if (!specs || !terms || !placed)
        return service_retry_later(job->service);
    while (gather(job, placed, terms, specs) > 0)
        ask_lane(job, placed, specs);
}

static void limits_told(struct service *s, void *data, const envelope *reply, int code,
                        const char *text)
{
    if (!reply && code != -ECONNRESET && code != -ENOTCONN)
        log_warn("a lane did not receive the new limits of a tenant: %s; the coordinator sends "
                 "them again with the next pieces of the tenant",
                 text);
}

void telling_limits_of(struct job *job, struct lane *lane)
{
    if (lane->aggregator->state == AGGREGATOR_UP)
        telling_ask(job, lane, job->epoch, PLACE_NEW, NULL, 0, limits_told, NULL, 0);
}

void telling_limits(struct job *job)
{
    for (size_t i = 0; i < job->shares_count; i++) {
        if (job->shares[i].pieces > 0)
            telling_limits_of(job, job->shares[i].lane);
    }
}

static void dropped(struct service *s, void *data, const envelope *reply, int code,
                    const char *text)
{
    if (!reply && code != -ECONNRESET && code != -ENOTCONN)
        log_warn("a lane did not drop pieces: %s; see the log of its aggregator", text);
}

void telling_drop(struct lane *lane, uint32_t job_id, uint32_t *pieces, size_t count)
{
    if (lane->aggregator->state != AGGREGATOR_UP)
        /* when the aggregator joins again, it lists its pieces, and the coordinator orders it to
         * drop these pieces */
        return;
    lane_call(lane, dropped, NULL, 0, DROP_REQUEST, drop_request, .job_id = job_id,
              .pieces = pieces, .n_pieces = count);
}

/* Closes the connection of a lane whose pieces stay frozen and so serve no rounds. When the lane
 * joins again, it lists these pieces. */
static void meet_again(struct lane *lane)
{
    if (lane->aggregator->peer)
        peer_break(lane->aggregator->peer);
}

static void thawed(struct service *s, void *data, const envelope *reply, int code, const char *text)
{
    struct lane *lane = lane_find(s, *(const uint32_t *)data);
    if (reply || !lane)
        return;
    log_warn("lane %u did not resume its released pieces: %s; see the log of its aggregator",
             lane->id, text);
    if (code == -ETIMEDOUT)
        meet_again(lane);
}

void telling_thaw(struct lane *lane, uint32_t job_id, uint32_t *pieces, size_t count)
{
    if (lane->aggregator->state != AGGREGATOR_UP)
        return; /* when the lane joins again, it lists its frozen pieces */
    if (lane_call(lane, thawed, &lane->id, sizeof lane->id, THAW_REQUEST, thaw_request,
                  .job_id = job_id, .pieces = pieces, .n_pieces = count) < 0)
        meet_again(lane);
}
