/* Copies of parameters and moments in the memory of workers, for the loss of a lane (L28). */
#ifndef GRADPOOL_CLIENT_LIB_JOB_STATE_COPY_H
#define GRADPOOL_CLIENT_LIB_JOB_STATE_COPY_H

#include "client/lib/job/piece.h"

struct fabric_conn;

/* Decides whether this rank stores the copy of the piece. Must be called when the ranks of the
 * tensor are set or change. */
void copy_choose(struct piece *p);
/* Allocates the copies that this rank stores. Called before the tensor's first push and before any
 * READY. -ENOMEM, -ENOSPC, with text. */
int copy_prepare(struct gp_tensor *t);
/* Offers the copy to the lane: once for each opening of the piece's link, before the first READY.
 * -EAGAIN: the send queue is full; -ECONNRESET: the connection has ended. */
int copy_tell(struct piece *p, struct fabric_conn *conn, uint32_t opening);
/* Handles BACKED from the lane of `link`: the copy in the offered memory is complete from the
 * record's round on. */
void copy_backed(struct gp_job *job, const struct link *link, const struct record_backed *told);
void copy_free(struct piece *p);

#endif
