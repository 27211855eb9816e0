/* Copies of parameters and moments in the memory of workers, in case a lane dies (L28). */
#ifndef GRADPOOL_CLIENT_LIB_JOB_STATE_COPY_H
#define GRADPOOL_CLIENT_LIB_JOB_STATE_COPY_H

#include "client/lib/job/piece.h"

struct fabric_conn;

/* Decides whether this rank stores a copy of the piece. Called when the ranks of its tensor become
 * known, and when they change. */
void copy_choose(struct piece *p);
/* Allocates the copies that this rank has to store. Called before the tensor's first push and
 * before any READY. -ENOMEM, -ENOSPC, with text. */
int copy_prepare(struct gp_tensor *t);
/* Sends the place of the copy before the first READY after each opening of the piece's link.
 * -EAGAIN: no room; -ECONNRESET. */
int copy_tell(struct piece *p, struct fabric_conn *conn, uint32_t opening);
/* Handles a record of the lane at the other end of `link`: it has accepted an offer, and the copy
 * is complete. */
void copy_backed(struct gp_job *job, const struct link *link, const struct record_backed *told);
void copy_free(struct piece *p);

#endif
