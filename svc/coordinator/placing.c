/* Where pieces lie: asks the packer, keeps what each lane carries, tells the lanes. The packer
 * decides by itself; here are only its inputs and what becomes of its plan. */
#include "packer/packer.h"
#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* --- what lies where --- */

void piece_attach(struct tensor *tensor, struct piece *piece, struct lane *lane)
{
    struct share *share = jobs_share(tensor->job, lane);
    uint64_t bytes = tensor_bytes(tensor, piece->elements);
    if (!share)
        return; /* stays stranded, and is placed later */
    lane->jobs += share->pieces == 0;
    lane->load_bytes += bytes;
    share->pieces++;
    share->bytes += bytes;
    piece->lane = lane;
    piece->state = PIECE_PLACED;
}

void piece_detach(struct tensor *tensor, struct piece *piece)
{
    if (!piece->lane)
        return;
    struct share *share = jobs_share(tensor->job, piece->lane);
    uint64_t bytes = tensor_bytes(tensor, piece->elements);
    share->pieces--;
    share->bytes -= bytes;
    piece->lane->load_bytes -= bytes;
    piece->lane->jobs -= share->pieces == 0;
    piece->lane = NULL;
    piece->state = PIECE_STRANDED;
}

/* --- planning --- */

static int compare_lanes(const void *a, const void *b)
{
    uint32_t left = ((const struct packer_lane *)a)->id, right = ((const struct packer_lane *)b)->id;
    return left < right ? -1 : left > right;
}

static void describe_lane(struct job *job, const struct lane *lane, struct packer_lane *ret_lane)
{
    *ret_lane = (struct packer_lane){.id = lane->id, .jobs = lane->jobs,
        .load_bytes = lane->load_bytes, .numa = lane->numa,
        .memory_bytes = UINT64_MAX /* sums leave nothing on a lane between rounds */};
    for (size_t i = 0; i < job->shares_count; i++) {
        if (job->shares[i].lane != lane || job->shares[i].pieces == 0)
            continue;
        ret_lane->job_bytes = job->shares[i].bytes;
        ret_lane->jobs--;
    }
}

/* Lanes that are up, ascending; free with free(). */
static int describe_lanes(struct job *job, struct packer_lane **ret_lanes, size_t *ret_count)
{
    size_t count = 0, capacity = 0;
    list_for_each(node, &job->service->aggregators)
        capacity += list_entry(node, struct aggregator, link)->lanes_count;
    struct packer_lane *lanes = calloc(capacity ? capacity : 1, sizeof *lanes);
    if (!lanes)
        return -ENOMEM;
    list_for_each(node, &job->service->aggregators) {
        const struct aggregator *a = list_entry(node, struct aggregator, link);
        for (size_t i = 0; i < a->lanes_count && a->state == AGGREGATOR_UP; i++)
            describe_lane(job, &a->lanes[i], &lanes[count++]);
    }
    qsort(lanes, count, sizeof *lanes, compare_lanes);
    *ret_lanes = lanes;
    *ret_count = count;
    return 0;
}

static int ask_packer(struct job *job, const struct packer_tensor *items, size_t items_count,
                      struct packer_plan *ret_plan, struct err *err)
{
    _cleanup_free_ struct packer_lane *lanes = NULL;
    size_t lanes_count;
    char reason[ERR_TEXT_BYTES - 64];
    if (describe_lanes(job, &lanes, &lanes_count) < 0)
        return err_set(err, -ENOMEM, "gradpool serve is out of memory");
    if (lanes_count == 0)
        return err_set(err, -ENOSPC, "no aggregator is up: there is no lane to place job %.64s on",
                       job->name);
    struct packer_request request = {.policy = job->service->options.policy,
        .workers = job->workers, .job_key = job->id, .lanes = lanes, .lanes_count = lanes_count,
        .tensors = items, .tensors_count = items_count};
    int error = packer_place(&request, ret_plan, reason, sizeof reason);
    return error < 0 ? err_set(err, error, "job %.64s cannot be placed: %s", job->name, reason) : 0;
}

/* The job's open task on that lane while it has room, else a new one. */
static uint32_t task_for(struct job *job, struct lane *lane, uint64_t bytes)
{
    struct share *share = jobs_share(job, lane);
    if (!share)
        return job->service->numbers.next_task++;
    if (share->open_task == 0 || share->open_task_bytes + bytes > TASK_BYTES_MAX) {
        share->open_task = job->service->numbers.next_task++;
        share->open_task_bytes = 0;
    }
    share->open_task_bytes += bytes;
    return share->open_task;
}

/* Pieces of one tensor stand together in the plan: [at, end). */
static int take_pieces(struct tensor *tensor, const struct packer_piece *plan, size_t count)
{
    struct job *job = tensor->job;
    tensor->pieces = calloc(count, sizeof *tensor->pieces);
    if (!tensor->pieces)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct lane *lane = lane_find(job->service, plan[i].lane);
        uint64_t bytes = tensor_bytes(tensor, plan[i].elements);
        tensor->pieces[i] = (struct piece){.id = job->next_piece++, .epoch = job->epoch,
            .first = plan[i].first, .elements = plan[i].elements, .lane = lane,
            .task = task_for(job, lane, bytes)};
    }
    tensor->pieces_count = count;
    return 0;
}

static int take_plan(struct tensor *const *tensors, size_t count, const struct packer_plan *plan,
                     struct err *err)
{
    if (plan->pieces_count > DECLARE_PIECES_MAX)
        return err_set(err, -EMSGSIZE, "these tensors make %zu pieces, a declare at most %u: "
                       "declare them in several calls", plan->pieces_count, DECLARE_PIECES_MAX);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t end = at;
        while (end < plan->pieces_count && plan->pieces[end].tensor == tensors[i]->id)
            end++;
        if (end == at || take_pieces(tensors[i], plan->pieces + at, end - at) < 0)
            return err_set(err, -ENOMEM, "gradpool serve is out of memory");
        at = end;
    }
    return 0;
}

int placing_plan(struct job *job, struct tensor *const *tensors, size_t count, struct err *err)
{
    struct packer_plan plan = {0};
    _cleanup_free_ struct packer_tensor *items = calloc(count, sizeof *items);
    if (!items)
        return err_set(err, -ENOMEM, "gradpool serve is out of memory");
    for (size_t i = 0; i < count; i++)
        items[i] = (struct packer_tensor){.id = tensors[i]->id, .name_hash = tensors[i]->hash,
            .elements = tensors[i]->elements,
            .element_bytes = (uint32_t)tensor_bytes(tensors[i], 1)};
    int error = ask_packer(job, items, count, &plan, err);
    if (error < 0)
        return error;
    error = take_plan(tensors, count, &plan, err);
    packer_plan_fini(&plan);
    return error;
}

int placing_plan_tasks(struct job *job, struct task *tasks, size_t count, struct err *err)
{
    struct packer_plan plan = {0};
    _cleanup_free_ struct packer_tensor *items = calloc(count, sizeof *items);
    if (!items)
        return err_set(err, -ENOMEM, "gradpool serve is out of memory");
    for (size_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", tasks[i].id);
        items[i] = (struct packer_tensor){.id = (uint32_t)i, .name_hash = packer_hash(name),
            .elements = tasks[i].bytes, .element_bytes = 1};
    }
    int error = ask_packer(job, items, count, &plan, err);
    if (error < 0)
        return error;
    /* A policy that would cut a task decides by its first piece: a task stays whole. */
    for (size_t i = plan.pieces_count; i-- > 0;)
        tasks[plan.pieces[i].tensor].lane = lane_find(job->service, plan.pieces[i].lane);
    packer_plan_fini(&plan);
    return 0;
}

/* --- telling the lanes --- */

struct placed {
    uint32_t job, lane, epoch;
    bool recovering;
    size_t count;
    uint32_t pieces[];
};

static bool is_of(const struct piece *piece, const void *context)
{
    const struct placed *placed = context;
    return piece->epoch == placed->epoch && piece->recovering && piece->state == PIECE_READY;
}

static void settle(struct job *job, const struct placed *placed, int code, const char *text)
{
    for (size_t i = 0; i < placed->count; i++) {
        struct tensor *tensor;
        struct piece *piece = jobs_piece(job, placed->pieces[i], &tensor);
        if (!piece || !piece->lane || piece->lane->id != placed->lane ||
            piece->epoch != placed->epoch || piece->state != PIECE_ASKED)
            continue; /* it has gone elsewhere meanwhile */
        piece->state = code < 0 ? PIECE_PLACED : PIECE_READY;
        if (code < 0 && code != -ECONNRESET && code != -ENOTCONN)
            tensor_fail(tensor, NULL, code, text);
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
        log_warn("job %s: lane %u did not take %zu pieces: %s", job->name, placed->lane,
                 placed->count, text);
    settle(job, placed, reply ? 0 : code, text);
    if (reply && placed->recovering)
        recovery_send_routes(job, NULL, is_of, placed);
    tensors_check_waits(job);
}

static void add_spec(WIRE(PieceSpec) *spec, const struct tensor *tensor, const struct piece *piece)
{
    gradpool__wire__piece_spec__init(spec);
    spec->piece = piece->id;
    spec->task = piece->task;
    spec->dtype = tensor->dtype;
    spec->elements = piece->elements;
    spec->tensor = tensor->name;
}

/* The job's pieces that wait for their lane to be told, those of one message. */
static size_t gather(struct job *job, struct placed *placed, WIRE(PieceSpec) *specs)
{
    struct lane *lane = NULL;
    for (size_t t = 0; t < job->tensors_count; t++) {
        struct tensor *tensor = job->tensors[t];
        for (size_t i = 0; i < tensor->pieces_count; i++) {
            struct piece *piece = &tensor->pieces[i];
            if (piece->state != PIECE_PLACED || tensor->failure ||
                piece->lane->aggregator->state != AGGREGATOR_UP)
                continue;
            if (!lane) {
                lane = piece->lane;
                *placed = (struct placed){.job = job->id, .lane = lane->id, .epoch = piece->epoch,
                                          .recovering = piece->recovering};
            }
            if (piece->lane != lane || piece->epoch != placed->epoch ||
                piece->recovering != placed->recovering || placed->count == MESSAGE_PIECES_MAX)
                continue;
            add_spec(&specs[placed->count], tensor, piece);
            placed->pieces[placed->count++] = piece->id;
            piece->state = PIECE_ASKED;
        }
    }
    return placed->count;
}

/* Takes over `placed`. Out of memory the pieces stay asked, and the declare ends at its deadline. */
static void ask_lane(struct job *job, struct placed *placed, WIRE(PieceSpec) *specs)
{
    WIRE(PieceSpec) **list = calloc(placed->count, sizeof *list);
    if (!list)
        return free(placed);
    for (size_t i = 0; i < placed->count; i++)
        list[i] = &specs[i];
    WIRE(PlaceRequest) request = GRADPOOL__WIRE__PLACE_REQUEST__INIT;
    request.lane = placed->lane;
    request.job_id = job->id;
    request.job = job->name;
    request.workers = job->workers;
    request.epoch = placed->epoch;
    request.recovering = placed->recovering;
    request.pieces = list;
    request.n_pieces = placed->count;
    envelope e = ENVELOPE_INIT;
    e.body_case = BODY(PLACE_REQUEST);
    e.place_request = &request;
    struct lane *lane = lane_find(job->service, placed->lane);
    call_send(lane->aggregator, &e, CALL_DEADLINE_NS, lane_answered, placed);
    free(list);
}

void placing_send(struct job *job)
{
    size_t pieces = 0;
    for (size_t t = 0; t < job->tensors_count; t++)
        pieces += job->tensors[t]->pieces_count;
    size_t room = pieces < MESSAGE_PIECES_MAX ? pieces : MESSAGE_PIECES_MAX;
    _cleanup_free_ WIRE(PieceSpec) *specs = calloc(room ? room : 1, sizeof *specs);
    for (;;) {
        struct placed *placed = calloc(1, sizeof *placed + room * sizeof placed->pieces[0]);
        if (!specs || !placed || gather(job, placed, specs) == 0) {
            free(placed);
            return;
        }
        ask_lane(job, placed, specs);
    }
}

static void dropped(struct service *s, void *data, const envelope *reply, int code,
                    const char *text)
{
    if (!reply && code != -ECONNRESET && code != -ENOTCONN)
        log_warn("a lane did not drop what it was told to: %s", text);
}

void placing_drop(struct lane *lane, uint32_t job_id, uint32_t *pieces, size_t count)
{
    if (lane->aggregator->state != AGGREGATOR_UP)
        return; /* when it is back, it is told what to drop by what it holds */
    WIRE(DropRequest) request = GRADPOOL__WIRE__DROP_REQUEST__INIT;
    request.lane = lane->id;
    request.job_id = job_id;
    request.pieces = pieces;
    request.n_pieces = count;
    envelope e = ENVELOPE_INIT;
    e.body_case = BODY(DROP_REQUEST);
    e.drop_request = &request;
    call_send(lane->aggregator, &e, CALL_DEADLINE_NS, dropped, NULL);
}
