/* Pushes that the library itself makes; gradpool.h declares the pushes of scripts. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_PUSH_PULL_H
#define GRADPOOL_CLIENT_LIB_ROUND_PUSH_PULL_H

#include "client/lib/job/tensor.h"

/* Begins a round without bytes. Called with the job's lock held. */
int push_internal(struct gp_tensor *t, uint8_t operation, struct gp_request **ret_request);
/* Announces the round of the hidden tensor without a gradient of this rank (W22). Called with the
 * job's lock held. */
int push_without(struct gp_tensor *leader, struct gp_request **ret_request);
/* Begins a round that sums words of the library. `is_counted`: the round belongs to an iteration
 * (L33). Called with the job's lock held; the words are lent until the request is over. */
int push_words(struct gp_tensor *t, const void *words, void *ret_words, bool is_counted,
               struct gp_request **ret_request);
/* Sends the tensor's state to `state`, as a round of all ranks (W16). NULL: this rank does not get
 * the state. */
int push_save(struct gp_tensor *t, void *state, struct gp_request **ret_request);
/* Sets the tensor's state from `state` of rank `root` (NULL on other ranks), with the count
 * `steps`. The parameters are written to `parameters`, unless that is NULL. */
int push_restore(struct gp_tensor *t, uint32_t root, const void *state, void *parameters,
                 uint64_t steps, struct gp_request **ret_request);

#endif
