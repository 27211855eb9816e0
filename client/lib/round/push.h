/* One push of one tensor: the memory that the lane uses, and the begin of the round (L1, L2,
 * L17). */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_PUSH_H
#define GRADPOOL_CLIENT_LIB_ROUND_PUSH_H

#include "client/lib/job/tensor.h"

/* Decides which memory of the push is lent in place and which is copied, and allocates room for
 * copies. -ENOMEM, -ENOSPC, with text. */
int push_place(struct gp_tensor *t, struct push *push);
/* Returns whether the round of `next` may be announced now. */
bool push_may_begin(const struct gp_tensor *t);
/* Copies the input of `next`, and begins its round. The job's lock is released during a long copy;
 * a request that fails meanwhile begins no round. */
void push_start(struct gp_tensor *t);
/* Begins the queued push of a tensor whose open round is committed, unless the hold stops the push
 * (L33). */
void push_begin_queued(struct gp_tensor *t);
/* Begins each queued push whose tensor has no open round, unless the hold stops the push. */
void push_begin_held(struct gp_job *job);

#endif
