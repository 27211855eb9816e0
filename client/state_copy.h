/* Copies of parameters and moments in workers' memory, for lanes that die (L28). */
#ifndef GRADPOOL_CLIENT_STATE_COPY_H
#define GRADPOOL_CLIENT_STATE_COPY_H

#include "client/link.h"

/* Once the ranks of its tensor are known, and when they change: whether this rank is to keep a copy
 * of the piece. */
void copy_choose(struct piece *p);
/* Before the tensor's first push, or anything is said of it to a lane: room for the copies that
 * this rank is to keep. -ENOMEM, -ENOSPC, with text. */
int copy_prepare(struct gp_tensor *t);
/* Before the first announcement on each connection. -EAGAIN: no room; -ECONNRESET. */
int copy_tell(struct link *l, struct piece *p);
/* The lane says that an offer was taken, and the copy is whole. */
void copy_backed(struct link *l, const struct record_backed *told);
void copy_free(struct piece *p);

#endif
