/* What is said about copies: to lanes, who keeps those of their pieces; to keepers, which lane has
 * the pieces now. All pieces of one kind are one message; what is not answered is said again. */
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

/* Pieces that one message names. */
struct copies_told {
    enum keeping_whom whom;
    uint32_t job, lane;
    uint32_t keeper; /* that is told, or that the lane is told of */
    bool when_known, begins;
    size_t count;
    uint32_t pieces[];
};

static bool *knows(struct piece *piece, enum keeping_whom whom)
{
    struct keeping *now = &piece->keeping;
    return whom == TELL_LANE     ? &now->lane_knows
           : whom == TELL_KEEPER ? &now->keeper_knows
                                 : &now->former_knows;
}

static uint32_t keeper_of(const struct piece *piece, enum keeping_whom whom)
{
    return whom == TELL_FORMER ? piece->keeping.former : piece->keeping.keeper;
}

/* A lane must know its pieces before anything is said of them. */
static bool can_be_told(const struct job *job, struct piece *piece, enum keeping_whom whom)
{
    if (piece->state != PIECE_READY || *knows(piece, whom))
        return false;
    const struct aggregator *a = whom == TELL_LANE
                                     ? piece->lane->aggregator
                                     : aggregator_find(job->service, keeper_of(piece, whom));
    return a && a->state == AGGREGATOR_UP;
}

static void fill_kind(const struct job *job, const struct piece *piece, enum keeping_whom whom,
                      struct copies_told *ret_kind)
{
    *ret_kind = (struct copies_told){.whom = whom,
                                     .job = job->id,
                                     .lane = piece->lane->id,
                                     .keeper = keeper_of(piece, whom),
                                     .when_known = whom == TELL_LANE && piece->keeping.former > 0,
                                     .begins = whom == TELL_KEEPER && piece->keeping.begins};
}

static bool is_of_kind(const struct copies_told *told, const struct copies_told *other)
{
    return told->lane == other->lane && told->keeper == other->keeper &&
           told->when_known == other->when_known && told->begins == other->begins;
}

/* Those of one message, which count as told until the answer says otherwise. */
static size_t gather(struct job *job, struct copies_told *told, enum keeping_whom whom)
{
    told->count = 0;
    for (size_t t = 0; t < job->tensors_count; t++) {
        struct tensor *tensor = job->tensors[t];
        for (size_t i = 0; i < tensor->pieces_count && tensor->terms.rule; i++) {
            struct piece *piece = &tensor->pieces[i];
            if (!can_be_told(job, piece, whom) || told->count == MESSAGE_PIECES_MAX)
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
    }
    if (whom == TELL_LANE && told->count > 0)
        job->copies->keepers_ns = clock_now_ns();
    return told->count;
}

/* They are to be told again, or (`is_unfit`) somebody else is. */
static void forget_told(struct job *job, const struct copies_told *told, bool is_unfit)
{
    for (size_t i = 0; i < told->count; i++) {
        struct piece *piece = jobs_piece(job, told->pieces[i], NULL);
        if (!piece || !piece->lane || piece->lane->id != told->lane ||
            keeper_of(piece, told->whom) != told->keeper)
            continue;
        *knows(piece, told->whom) = false;
        piece->keeping.begins |= is_unfit; /* who is silent may have begun */
        piece->keeping.is_unfit |= is_unfit;
    }
}

/* What it has needs no room: it may not have heard of what began. */
static bool lacks_room(const struct copies_told *told, int code)
{
    return told->whom == TELL_KEEPER && (code == -ENOSPC || code == -ENOMEM || code == -EMFILE);
}

/* Where nobody answered, the aggregator is told when it is back; or it is lost. Without room for
 * what begins another may have some. */
static void answered(struct service *s, void *data, const envelope *reply, int code,
                     const char *text)
{
    const struct copies_told *told = data;
    struct job *job = jobs_find_id(s, told->job);
    struct aggregator *keeper = aggregator_find(s, told->keeper);
    if (reply || !job)
        return;
    bool is_silent = call_went_unanswered(code);
    bool is_unfit = !is_silent && (told->begins || lacks_room(told, code));
    forget_told(job, told, is_unfit);
    if (is_unfit && keeper)
        keeping_relieve(keeper, job, told->lane, text);
    else if (!is_silent)
        log_warn("job %s: copies of what is on lane %u: %s", job->name, told->lane, text);
    if (!is_silent || code == -ETIMEDOUT)
        service_retry_later(s);
}

static int send_to_lane(struct job *job, struct copies_told *told)
{
    WIRE(KeeperRequest) request = GRADPOOL__WIRE__KEEPER_REQUEST__INIT;
    request.lane = told->lane;
    request.job_id = job->id;
    request.keeper = told->keeper;
    request.when_known = told->when_known;
    request.pieces = told->pieces;
    request.n_pieces = told->count;
    envelope e = ENVELOPE(0, KEEPER_REQUEST, keeper_request, &request);
    struct aggregator *a = lane_find(job->service, told->lane)->aggregator;
    return call_send(a, &e, CALL_DEADLINE_NS, answered, told);
}

void keeping_spec(const struct tensor *tensor, const struct piece *piece, uint32_t epoch,
                  bool begins, WIRE(CopySpec) * spec)
{
    gradpool__wire__copy_spec__init(spec);
    spec->piece = piece->id;
    spec->epoch = epoch;
    spec->lost_epoch = piece->lost_epoch;
    spec->bytes =
        tensor_bytes(tensor, piece->elements) * (1 + (uint64_t)update_moments(tensor->terms.rule));
    spec->begins = begins;
}

int keeping_send(struct aggregator *keeper, const struct job *job, uint32_t lane,
                 WIRE(CopySpec) * specs, size_t count, call_done_fn done, void *data)
{
    _cleanup_free_ WIRE(CopySpec) **list = calloc(count, sizeof *list);
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        list[i] = &specs[i];
    WIRE(CopiesRequest) request = GRADPOOL__WIRE__COPIES_REQUEST__INIT;
    request.job_id = job->id;
    request.job = job->name;
    request.lane = lane;
    request.copies = list;
    request.n_copies = count;
    envelope e = ENVELOPE(0, COPIES_REQUEST, copies_request, &request);
    return call_send(keeper, &e, CALL_DEADLINE_NS, done, data);
}

static int send_to_keeper(struct job *job, struct copies_told *told)
{
    _cleanup_free_ WIRE(CopySpec) *specs = calloc(told->count, sizeof *specs);
    for (size_t i = 0; specs && i < told->count; i++) {
        struct tensor *tensor;
        struct piece *piece = jobs_piece(job, told->pieces[i], &tensor);
        keeping_spec(tensor, piece, piece->epoch, told->begins, &specs[i]);
        piece->keeping.begins &= !told->begins;
    }
    struct aggregator *keeper = aggregator_find(job->service, told->keeper);
    return specs ? keeping_send(keeper, job, told->lane, specs, told->count, answered, told)
                 : -ENOMEM;
}

void keeping_tell(struct job *job, enum keeping_whom whom)
{
    size_t room = job->index->pieces_count < MESSAGE_PIECES_MAX ? job->index->pieces_count
                                                                : MESSAGE_PIECES_MAX;
    for (;;) {
        struct copies_told *told = calloc(1, sizeof *told + room * sizeof told->pieces[0]);
        if (!told || gather(job, told, whom) == 0) {
            free(told);
            return told ? (void)0 : service_retry_later(job->service);
        }
        int error = whom == TELL_LANE ? send_to_lane(job, told) : send_to_keeper(job, told);
        if (error == 0)
            continue;
        forget_told(job, told, false);
        free(told);
        return service_retry_later(job->service);
    }
}
