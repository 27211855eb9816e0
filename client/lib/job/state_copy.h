/* Copies of parameters and moments in workers' memory, for lanes that die (L28). */
#ifndef GRADPOOL_CLIENT_LIB_JOB_STATE_COPY_H
#define GRADPOOL_CLIENT_LIB_JOB_STATE_COPY_H

#include "client/lib/job/piece.h"

struct fabric_conn;

/* Decides whether this rank stores a copy of the piece: once the ranks of its tensor are known, and
 * when they change. */
void copy_choose(struct piece *p);
/* Allocates the copies that this rank is to store, before the tensor's first push and before any
 * READY. -ENOMEM, -ENOSPC, with text. */
int copy_prepare(struct gp_tensor *t);
/* Sends the copy's place before the first READY on each opening of the piece's link. -EAGAIN: no
 * room; -ECONNRESET. */
int copy_tell(struct piece *p, struct fabric_conn *conn, uint32_t opening);
/* The lane at the other end of `link` has taken an offer: the copy is whole. */
void copy_backed(struct gp_job *job, const struct link *link, const struct record_backed *told);
void copy_free(struct piece *p);

#endif
