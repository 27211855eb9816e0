/* Tensors and pieces: the ranks that declared them, their entries in the store, their routes in
 * messages. */
#ifndef GRADPOOL_COORDINATOR_JOB_TENSOR_H
#define GRADPOOL_COORDINATOR_JOB_TENSOR_H

#include "svc/coordinator/job/job.h"

/* The names of tensors of the client library begin with this text. */
#define TENSOR_NAME_RESERVED "gradpool."
#define TENSOR_BYTES_MAX (UINT64_C(1) << 40)
/* maximum number of pieces in a DeclareReply, limited by the size of a frame */
#define DECLARE_PIECES_MAX 300000u
#define MESSAGE_PIECES_MAX 32768u /* maximum number of pieces of a PlaceRequest or RouteChange */

/* --- tensor.c --- */

struct tensor *tensor_create(struct job *job, uint32_t id, const char *name, uint32_t dtype,
                             uint64_t elements, const struct terms *terms);
void tensor_destroy(struct tensor *tensor);
uint64_t tensor_bytes(const struct tensor *tensor, uint64_t elements);
/* Returns whether the tensor belongs to the client library. */
static inline bool tensor_is_reserved(const struct tensor *tensor)
{
    return strncmp(tensor->name, TENSOR_NAME_RESERVED, strlen(TENSOR_NAME_RESERVED)) == 0;
}
bool tensor_has_rank(const struct tensor *tensor, uint32_t rank);
void tensor_set_rank(struct tensor *tensor, uint32_t rank, bool on);
/* Sends the failure of a tensor to a rank that has declared the tensor. The first message may not
 * have reached the rank. */
void tensor_send_failure(const struct tensor *tensor, const struct session *to);
/* Fails the tensor permanently. The reason is stored and sent to every rank that has declared the
 * tensor, except `except`. A second call has no effect. */
void tensor_fail(struct tensor *tensor, const struct session *except, int code, const char *text);
void tensor_row(const struct tensor *tensor, struct store_row *ret_row);
void piece_row(const struct tensor *tensor, const struct piece *piece, struct store_row *ret_row);
int tensor_restore(struct service *s, const struct store_tensor *row);
int piece_restore(struct service *s, const struct store_piece *row);

typedef bool (*piece_wanted_fn)(const struct piece *piece, const void *context);
/* Returns the routes of the pieces that have a lane and that `wanted` accepts (NULL: all). The
 * message is one block, which the caller frees. Returns NULL if memory is missing. */
WIRE(TensorRoute) *
    tensor_route(const struct tensor *tensor, piece_wanted_fn wanted, const void *context);
/* Sends RouteChange to one session, or to all connected sessions if `to` is NULL. */
void tensors_send_routes(struct job *job, const struct session *to, piece_wanted_fn wanted,
                         const void *context);

#endif
