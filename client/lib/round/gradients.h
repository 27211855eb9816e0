/* Several gradients of this rank in one round of a job with backup workers (W22). While the round
 * waits for slow ranks, the leader lane requests another gradient on the same parameters (GO_ON).
 * README.md: L120, L121. All functions are called with the job's lock held. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_GRADIENTS_H
#define GRADPOOL_CLIENT_LIB_ROUND_GRADIENTS_H

#include "client/lib/job/request.h"
#include "client/lib/job/tensor.h"

struct link;

/* Returns the maximum number of gradients of this rank in a round. */
uint32_t gradients_most(const struct gp_job *job);
/* Returns whether a push of the tensor has slots for several gradients. */
bool gradients_have_slots(const struct gp_tensor *t, uint8_t operation);
/* Returns the bytes from one slot of the push to the next; 0: the push has one slot. */
uint64_t gradients_stride(const struct gp_tensor *t, uint8_t operation);
/* Returns the bytes of staging memory for the slots; 0: the tensor has one slot. */
uint64_t gradients_staging(const struct gp_tensor *t);

/* Returns the number of gradients of the open round that the leader lane knows. */
uint8_t gradients_announced(const struct gp_job *job);
/* Returns the number of gradients of the open round that were pushed. */
uint8_t gradients_pushed(const struct gp_job *job);
/* Handles GO_ON of a lane. A request for another gradient than the next one is counted and
 * dropped. */
void gradients_hear(struct link *l, const struct record_go_on *record);

/* Returns whether a push of this operation is another gradient of the open round. */
bool gradients_are_more(const struct gp_job *job, const gp_item *item, uint8_t operation);
/* Copies another gradient of each tensor to its slot. `settings`: settings of an update; NULL: a
 * reduction. Returns the request of the round's first push in `ret_request`. Errors: -EINVAL other
 * tensors, memory, operation or settings than in the first push; -EBUSY the gradient is in its slot
 * already; the failure of a tensor. After an error no slot was written. */
int gradients_push(struct gp_job *job, const gp_item *items, size_t count, uint8_t operation,
                   const struct update_settings *settings, struct gp_request **ret_request);
/* Announces the gradient that was pushed after GO_ON. Without such a push, the rank waits for the
 * end of the round. -EINVAL: some tensors lack the gradient. */
int gradients_announce(struct gp_job *job);

#endif
