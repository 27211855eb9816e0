/* Copies of parameters and moments in the memory of workers, in case a lane dies (L28). */
#ifndef GRADPOOL_CLIENT_LIB_JOB_STATE_COPY_H
#define GRADPOOL_CLIENT_LIB_JOB_STATE_COPY_H

#include "client/lib/job/piece.h"

struct fabric_conn;

/* Decides whether this rank stores the copy of the piece. Called for new and for changed ranks of
 * the tensor. */
void copy_choose(struct piece *p);
/* Allocates the copies that this rank stores. Called before the tensor's first push and before any
 * READY. -ENOMEM, -ENOSPC, with text. */
int copy_prepare(struct gp_tensor *t);
/* Sends the address of the copy, after each opening of the piece's link and before its first READY.
 * -EAGAIN: no room; -ECONNRESET. */
int copy_tell(struct piece *p, struct fabric_conn *conn, uint32_t opening);
/* Handles a record from the lane of `link`: the lane uses the offered memory, and the copy is
 * complete. */
void copy_backed(struct gp_job *job, const struct link *link, const struct record_backed *told);
void copy_free(struct piece *p);

#endif
