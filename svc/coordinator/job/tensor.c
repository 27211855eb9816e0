/* Tensors: the ranks that declared them, their entries in the store, their routes in messages. Owns
 * struct tensor and its pieces. */
#include "svc/coordinator/job/tensor.h"

#include "svc/base/cleanup.h"
#include "svc/base/log.h"
#include "svc/coordinator/aggregator/lane.h"
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/membership/membership.h"
#include "svc/coordinator/service.h"
#include "svc/reduce/reduce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tensor *tensor_create(struct job *job, uint32_t id, const char *name, uint32_t dtype,
                             uint64_t elements, const struct terms *terms)
{
    struct tensor *tensor = calloc(1, sizeof *tensor);
    if (!tensor)
        return NULL;
    *tensor = (struct tensor){.job = job,
                              .id = id,
                              .dtype = dtype,
                              .elements = elements,
                              .terms = *terms,
                              .name = strdup(name)};
    if (!tensor->name) {
        free(tensor);
        return NULL;
    }
    members_begin(tensor);
    return tensor;
}

void tensor_destroy(struct tensor *tensor)
{
    free(tensor->pieces);
    free(tensor->failure);
    free(tensor->name);
    free(tensor);
}

uint64_t tensor_bytes(const struct tensor *tensor, uint64_t elements)
{
    return elements * reduce_element_bytes(tensor->dtype);
}

bool tensor_has_rank(const struct tensor *tensor, uint32_t rank)
{
    return tensor->ranks[rank / 8] & (1u << rank % 8);
}

void tensor_set_rank(struct tensor *tensor, uint32_t rank, bool on)
{
    if (tensor_has_rank(tensor, rank) == on)
        return;
    tensor->ranks[rank / 8] ^= (uint8_t)(1u << rank % 8);
    tensor->ranks_count += on ? 1 : (uint32_t)-1;
}

void tensor_row(const struct tensor *tensor, struct store_row *ret_row)
{
    *ret_row = (struct store_row){.table = STORE_TENSOR};
    ret_row->tensor = (struct store_tensor){.job = tensor->job->id,
                                            .tensor = tensor->id,
                                            .name = tensor->name,
                                            .dtype = tensor->dtype,
                                            .elements = tensor->elements,
                                            .failure = tensor->failure ? tensor->failure : "",
                                            .ranks = tensor->ranks,
                                            .terms = &tensor->terms,
                                            .members = (const uint8_t *)tensor->members,
                                            .grouped = tensor->grouped,
                                            .committed = tensor->committed};
}

void piece_row(const struct tensor *tensor, const struct piece *piece, struct store_row *ret_row)
{
    *ret_row = (struct store_row){.table = STORE_PIECE};
    ret_row->piece = (struct store_piece){.job = tensor->job->id,
                                          .piece = piece->id,
                                          .tensor = tensor->id,
                                          .task = piece->task,
                                          .lane = piece->lane ? piece->lane->id : 0,
                                          .epoch = piece->epoch,
                                          .first = piece->first,
                                          .elements = piece->elements,
                                          .lost_epoch = piece->lost_epoch,
                                          .keeper = piece->keeping.holder,
                                          .former_keeper = piece->keeping.former};
}

int tensor_restore(struct service *s, const struct store_tensor *row)
{
    struct job *job = jobs_find_id(s, row->job);
    if (!job || reduce_element_bytes(row->dtype) == 0)
        return -EBADMSG;
    struct terms terms;
    if (terms_read(row->terms, STORE_TERMS_BYTES, &terms) < 0 || terms_fault(&terms, job->workers))
        return -EBADMSG;
    struct tensor *tensor =
        tensor_create(job, row->tensor, row->name, row->dtype, row->elements, &terms);
    if (!tensor)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (row->ranks[rank / 8] & (1u << rank % 8) && !members_is_gone(job, rank))
            tensor_set_rank(tensor, rank, true);
    memcpy(tensor->members, row->members, sizeof tensor->members);
    tensor->grouped = row->grouped;
    tensor->committed = row->committed;
    if (*row->failure)
        tensor->failure = strdup(row->failure);
    /* the store does not record the code of the failure, so -EINVAL is used */
    tensor->failure_code = -EINVAL;
    return jobs_add_tensor(job, tensor);
}

/* Restores a piece. Rows are sorted by (job, tensor, piece), so the pieces of a tensor keep their
 * order. */
int piece_restore(struct service *s, const struct store_piece *row)
{
    struct job *job = jobs_find_id(s, row->job);
    struct tensor *tensor = job ? jobs_tensor(job, row->tensor) : NULL;
    if (!tensor ||
        (tensor->pieces_count > 0 && tensor->pieces[tensor->pieces_count - 1].id + 1 != row->piece))
        return -EBADMSG;
    struct piece *grown = realloc(tensor->pieces, (tensor->pieces_count + 1) * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    tensor->pieces = grown;
    struct piece *piece = &grown[tensor->pieces_count++];
    job->index->pieces_count++;
    *piece = (struct piece){.id = row->piece,
                            .task = row->task,
                            .epoch = row->epoch,
                            .first = row->first,
                            .elements = row->elements,
                            .lost_epoch = row->lost_epoch,
                            .keeping = {.holder = row->keeper, .former = row->former_keeper},
                            .recovering = true};
    job->copies->has_formers |= row->former_keeper > 0;
    struct lane *lane = lane_find(s, row->lane);
    if (lane)
        piece_attach(tensor, piece, lane);
    return 0;
}

/* --- failing a tensor --- */

void tensor_send_failure(const struct tensor *tensor, const struct session *to)
{
    if (tensor_has_rank(tensor, to->rank) && to->peer)
        peer_reply(to->peer, 0, TENSOR_FAILURE, tensor_failure, .tensor = tensor->id,
                   .code = tensor->failure_code, .text = tensor->failure);
}

void tensor_fail(struct tensor *tensor, const struct session *except, int code, const char *text)
{
    struct job *job = tensor->job;
    struct store_row row;
    struct err err;
    if (tensor->failure)
        return;
    log_error("%s", text);
    tensor->failure = strdup(text);
    tensor->failure_code = code;
    tensor_row(tensor, &row);
    if (store_put_one(job->service->store, &row, &err) < 0)
        log_error("%s", err.text);
    for (uint32_t rank = 0; rank < job->workers; rank++)
        if (job->sessions[rank] && job->sessions[rank] != except)
            tensor_send_failure(tensor, job->sessions[rank]);
}

/* --- routes --- */

WIRE(TensorRoute) *
    tensor_route(const struct tensor *tensor, piece_wanted_fn wanted, const void *context)
{
    size_t count = tensor->pieces_count;
    char *memory = calloc(1, sizeof(WIRE(TensorRoute)) +
                                 count * (sizeof(WIRE(Piece) *) + sizeof(WIRE(Piece))));
    if (!memory)
        return NULL;
    WIRE(TensorRoute) *route = (void *)memory;
    WIRE(Piece) **list = (void *)(route + 1);
    WIRE(Piece) *pieces = (void *)(list + count);
    *route = MESSAGE_PART(TensorRoute, tensor_route, .tensor = tensor->id, .pieces = list);
    if (members_vary(tensor))
        route->ranks = (ProtobufCBinaryData){sizeof tensor->members, (uint8_t *)tensor->members};
    if (members_follow_stage(tensor)) {
        route->committed = tensor->committed;
        route->steps = tensor->steps;
    }
    for (size_t i = 0; i < count; i++) {
        const struct piece *piece = &tensor->pieces[i];
        if (!piece->lane || (wanted && !wanted(piece, context)))
            continue;
        WIRE(Piece) *out = list[route->n_pieces] = &pieces[route->n_pieces];
        *out =
            MESSAGE_PART(Piece, piece, .id = piece->id, .first = piece->first,
                         .elements = piece->elements, .task = piece->task, .lane = piece->lane->id,
                         .epoch = piece->epoch, .lost_epoch = piece->lost_epoch);
        route->n_pieces++;
    }
    return route;
}

static void send_change(struct job *job, const struct session *to, WIRE(RouteChange) * change)
{
    envelope e = ENVELOPE(0, ROUTE_CHANGE, route_change, change);
    if (!to)
        jobs_broadcast(job, NULL, &e);
    else if (to->peer)
        peer_send(to->peer, &e);
    for (size_t i = 0; i < change->n_tensors; i++)
        free(change->tensors[i]);
    change->n_tensors = 0;
}

void tensors_send_routes(struct job *job, const struct session *to, piece_wanted_fn wanted,
                         const void *context)
{
    size_t pieces = 0, count = job->tensors_count;
    _cleanup_free_ WIRE(TensorRoute) **tensors = calloc(count + 1, sizeof *tensors);
    if (!tensors)
        return log_error(
            "gradpool serve has no memory for the routes of job %s, and did not send them; "
            "raise its memory limit",
            job->name);
    WIRE(RouteChange) change = MESSAGE_PART(RouteChange, route_change, .tensors = tensors);
    for (size_t i = 0; i < job->tensors_count; i++) {
        WIRE(TensorRoute) *route = tensor_route(job->tensors[i], wanted, context);
        if (!route || route->n_pieces == 0) {
            free(route);
            continue;
        }
        pieces += route->n_pieces;
        tensors[change.n_tensors++] = route;
        if (pieces >= MESSAGE_PIECES_MAX) {
            send_change(job, to, &change);
            pieces = 0;
        }
    }
    if (change.n_tensors > 0)
        send_change(job, to, &change);
}
