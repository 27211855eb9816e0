/* Copies of parameters and moments in workers' memory, for lanes that die (L28). */
#ifndef GRADPOOL_CLIENT_STATE_COPY_H
#define GRADPOOL_CLIENT_STATE_COPY_H

#include "client/link.h"

/* Once the piece is routed: whether this rank keeps its copy. */
void copy_choose(struct piece *p);
/* Before the tensor's first push: room for the copies that this rank keeps. -ENOMEM, -ENOSPC. */
int copy_prepare(struct gp_tensor *t);
/* Before the first announcement on each connection. -EAGAIN: no room; -ECONNRESET. */
int copy_tell(struct link *l, struct piece *p);
void copy_free(struct piece *p);

#endif
