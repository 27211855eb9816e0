/* Tensors, where their pieces lie, and what becomes of them when an aggregator is lost. */
#ifndef GRADPOOL_COORDINATOR_JOB_TENSOR_H
#define GRADPOOL_COORDINATOR_JOB_TENSOR_H

#include "svc/coordinator/job/job.h"

#define TENSOR_BYTES_MAX (UINT64_C(1) << 40)
#define DECLARE_PIECES_MAX 300000u /* one DeclareReply fits a frame */
#define MESSAGE_PIECES_MAX 32768u  /* of one PlaceRequest or RouteChange, so that it fits a frame */

/* --- tensor.c --- */

struct tensor *tensor_create(struct job *job, uint32_t id, const char *name, uint32_t dtype,
                             uint64_t elements, const struct terms *terms);
void tensor_destroy(struct tensor *tensor);
uint64_t tensor_bytes(const struct tensor *tensor, uint64_t elements);
bool tensor_has_rank(const struct tensor *tensor, uint32_t rank);
void tensor_set_rank(struct tensor *tensor, uint32_t rank, bool on);
/* Again, of a tensor that has failed, to a rank that may have missed it. */
void tensor_send_failure(const struct tensor *tensor, const struct session *to);
/* Tells every rank that has declared it (but `except`), once; it stays failed. */
void tensor_fail(struct tensor *tensor, const struct session *except, int code, const char *text);
void tensor_row(const struct tensor *tensor, struct store_row *ret_row);
void piece_row(const struct tensor *tensor, const struct piece *piece, struct store_row *ret_row);
int tensor_restore(struct service *s, const struct store_tensor *row);
int piece_restore(struct service *s, const struct store_piece *row);

typedef bool (*piece_wanted_fn)(const struct piece *piece, const void *context);
/* Protobuf form of the pieces that `wanted` accepts (NULL: all); one block, for free(). */
WIRE(TensorRoute) *
    tensor_route(const struct tensor *tensor, piece_wanted_fn wanted, const void *context);
/* RouteChange to one session, or (NULL) to all that are connected. */
void tensors_send_routes(struct job *job, const struct session *to, piece_wanted_fn wanted,
                         const void *context);

#endif
