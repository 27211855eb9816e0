/* One push of one tensor: the place of its bytes, and the time at which its round begins (L1, L2,
 * L17). */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_PUSH_H
#define GRADPOOL_CLIENT_LIB_ROUND_PUSH_H

#include "client/lib/job/tensor.h"

/* Decides which memory of the push is lent in place and which is copied, and allocates room for
 * copies. -ENOMEM, -ENOSPC, with text. */
int push_place(struct gp_tensor *t, struct push *push);
/* Returns whether the round of `next` may be announced now. */
bool push_may_begin(const struct gp_tensor *t);
/* Copies the input of `next`, and begins its round. The lock is released during a long copy. */
void push_start(struct gp_tensor *t);
/* The open round is committed: begins the push that waits for it, unless that push is held
 * (L33). */
void push_begin_queued(struct gp_tensor *t);
/* Begins all pushes that do not have to wait any more. */
void push_begin_held(struct gp_job *job);

#endif
