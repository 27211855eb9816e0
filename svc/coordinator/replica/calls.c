/* Messages about replicas. A lane receives the holders of its pieces; a holder receives the lanes
 * of the pieces. Pieces with the same lane and holder share a message. A message is sent again
 * until it is answered. */
#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/call.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/tensor.h"
#include "svc/coordinator/replica/replica.h"
#include "svc/coordinator/service.h"
#include "svc/reduce/update.h"

#include <errno.h>
#include <stdlib.h>

/* The pieces that one message names. */
struct copies_told {
    enum keeping_whom whom;
    uint32_t job, lane;
    /* holder that receives the message; in a message to a lane, the pieces' holder */
    uint32_t holder;
    bool when_known, begins;
    size_t count;
    uint32_t pieces[];
};

static size_t told_bytes(size_t pieces)
{
    return sizeof(struct copies_told) + pieces * sizeof(uint32_t);
}

static bool *knows(struct piece *piece, enum keeping_whom whom)
{
    struct keeping *now = &piece->keeping;
    return whom == TELL_LANE     ? &now->lane_knows
           : whom == TELL_HOLDER ? &now->holder_knows
                                 : &now->former_knows;
}

static uint32_t holder_of(const struct piece *piece, enum keeping_whom whom)
{
    return whom == TELL_FORMER ? piece->keeping.former : piece->keeping.holder;
}

/* Returns whether the receiver still needs the message and can receive it. No message about a piece
 * is sent before the lane has confirmed the piece. */
static bool can_be_told(const struct job *job, struct piece *piece, enum keeping_whom whom)
{
    if (piece->state != PIECE_READY || *knows(piece, whom))
        return false;
    const struct aggregator *a = whom == TELL_LANE
                                     ? piece->lane->aggregator
                                     : aggregator_find(job->service, holder_of(piece, whom));
    return a && a->state == AGGREGATOR_UP;
}

static void fill_kind(const struct job *job, const struct piece *piece, enum keeping_whom whom,
                      struct copies_told *ret_kind)
{
    *ret_kind = (struct copies_told){.whom = whom,
                                     .job = job->id,
                                     .lane = piece->lane->id,
                                     .holder = holder_of(piece, whom),
                                     .when_known = whom == TELL_LANE && piece->keeping.former > 0,
                                     .begins = whom == TELL_HOLDER && piece->keeping.begins};
}

static bool is_of_kind(const struct copies_told *told, const struct copies_told *other)
{
    return told->lane == other->lane && told->holder == other->holder &&
           told->when_known == other->when_known && told->begins == other->begins;
}

/* Collects the pieces of the next message, and marks the receiver as informed about these pieces.
 * The mark is removed if the message fails. */
static size_t gather(struct job *job, struct copies_told *told, enum keeping_whom whom)
{
    told->count = 0;
    job_each_piece (piece, tensor, job) {
        if (!tensor->terms.rule || told->count == MESSAGE_PIECES_MAX ||
            !can_be_told(job, piece, whom))
            continue;
        struct copies_told kind;
        fill_kind(job, piece, whom, &kind);
        if (told->count == 0)
            *told = kind;
        if (!is_of_kind(told, &kind))
            continue;
        told->pieces[told->count++] = piece->id;
        *knows(piece, whom) = true;
    }
    if (whom == TELL_LANE && told->count > 0)
        job->copies->holders_ns = clock_now_ns();
    return told->count;
}

/* Removes the marks of gather() after a failed message. The message is then sent again, or another
 * holder is chosen (`is_unfit`). */
static void forget_told(struct job *job, const struct copies_told *told, bool is_unfit)
{
    for (size_t i = 0; i < told->count; i++) {
        struct piece *piece = jobs_piece(job, told->pieces[i], NULL);
        if (!piece || !piece->lane || piece->lane->id != told->lane ||
            holder_of(piece, told->whom) != told->holder)
            continue;
        *knows(piece, told->whom) = false;
        /* a holder without an answer may have begun to copy, so `begins` stays as it is */
        piece->keeping.begins |= is_unfit;
        piece->keeping.is_unfit |= is_unfit;
    }
}

/* Returns whether the code means that a holder has no memory for more copies. */
static bool lacks_room(const struct copies_told *told, int code)
{
    return told->whom == TELL_HOLDER && (code == -ENOSPC || code == -ENOMEM || code == -EMFILE);
}

/* Handles the answer. If no answer has arrived, the message is sent again when the receiver is
 * back, unless the receiver is lost. A holder without room for a new copy is replaced. */
static void answered(struct service *s, void *data, const envelope *reply, int code,
                     const char *text)
{
    const struct copies_told *told = data;
    struct job *job = jobs_find_id(s, told->job);
    struct aggregator *holder = aggregator_find(s, told->holder);
    if (reply || !job)
        return;
    bool is_silent = call_went_unanswered(code);
    bool is_unfit = !is_silent && (told->begins || lacks_room(told, code));
    forget_told(job, told, is_unfit);
    if (is_unfit && holder)
        keeping_relieve(holder, job, told->lane, text);
    else if (!is_silent)
        log_warn("job %s: an order about replicas of the tasks on lane %u failed: %s", job->name,
                 told->lane, text);
    if (!is_silent || code == -ETIMEDOUT)
        service_retry_later(s);
}

static int send_to_lane(struct job *job, const struct copies_told *told)
{
    return lane_call(lane_find(job->service, told->lane), answered, told, told_bytes(told->count),
                     HOLDER_REQUEST, holder_request, .job_id = job->id, .holder = told->holder,
                     .when_known = told->when_known, .pieces = (uint32_t *)told->pieces,
                     .n_pieces = told->count);
}

WIRE(CopySpec)
keeping_spec(const struct tensor *tensor, const struct piece *piece, uint32_t epoch, bool begins)
{
    uint64_t arrays = 1 + (uint64_t)update_moments(tensor->terms.rule);
    return MESSAGE_PART(CopySpec, copy_spec, .piece = piece->id, .epoch = epoch,
                        .lost_epoch = piece->lost_epoch, .begins = begins,
                        .bytes = tensor_bytes(tensor, piece->elements) * arrays);
}

int keeping_send(struct aggregator *holder, const struct job *job, uint32_t lane,
                 WIRE(CopySpec) * specs, size_t count, call_done_fn done, const void *data,
                 size_t data_bytes)
{
    _cleanup_free_ WIRE(CopySpec) **list = calloc(count, sizeof *list);
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        list[i] = &specs[i];
    return call_send(holder,
                     &MESSAGE(0, COPIES_REQUEST, copies_request, .job_id = job->id,
                              .job = job->name, .lane = lane, .copies = list, .n_copies = count),
                     CALL_DEADLINE_NS, done, data, data_bytes);
}

static int send_to_holder(struct job *job, const struct copies_told *told)
{
    size_t count = told->count;
    _cleanup_free_ WIRE(CopySpec) *specs = calloc(count, sizeof *specs);
    if (!specs)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct tensor *tensor;
        struct piece *piece = jobs_piece(job, told->pieces[i], &tensor);
        specs[i] = keeping_spec(tensor, piece, piece->epoch, told->begins);
        piece->keeping.begins &= !told->begins;
    }
    return keeping_send(aggregator_find(job->service, told->holder), job, told->lane, specs, count,
                        answered, told, told_bytes(count));
}

void keeping_tell(struct job *job, enum keeping_whom whom)
{
    size_t pieces = job->index->pieces_count;
    _cleanup_free_ struct copies_told *told =
        calloc(1, told_bytes(pieces < MESSAGE_PIECES_MAX ? pieces : MESSAGE_PIECES_MAX));
    if (!told)
        return service_retry_later(job->service);
    while (gather(job, told, whom) > 0) {
        if ((whom == TELL_LANE ? send_to_lane : send_to_holder)(job, told) == 0)
            continue;
        forget_told(job, told, false);
        return service_retry_later(job->service);
    }
}
