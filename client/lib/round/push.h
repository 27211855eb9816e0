/* One push of one tensor: where its bytes lie, and when its round begins (L1, L2, L17). */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_PUSH_H
#define GRADPOOL_CLIENT_LIB_ROUND_PUSH_H

#include "client/lib/job/tensor.h"

/* Decides what of the push is lent where it lies and what is copied, and finds room for copies.
 * -ENOMEM, -ENOSPC, with text. */
int push_place(struct gp_tensor *t, struct push *push);
/* Whether the round of `next` may be announced now. */
bool push_may_begin(const struct gp_tensor *t);
/* Copies the input of `next` and begins its round. The lock is released during a long copy. */
void push_start(struct gp_tensor *t);
/* The open round is committed: begins the push that waits for it, unless that is held (L33). */
void push_begin_queued(struct gp_tensor *t);
/* Begins all pushes that wait for nothing else any more. */
void push_begin_held(struct gp_job *job);

#endif
