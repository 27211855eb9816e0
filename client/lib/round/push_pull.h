/* Pushes that the library makes by itself. The API's are in gradpool.h. */
#ifndef GRADPOOL_CLIENT_LIB_ROUND_PUSH_PULL_H
#define GRADPOOL_CLIENT_LIB_ROUND_PUSH_PULL_H

#include "client/lib/job/tensor.h"

/* A round without bytes. With the job's lock. */
int push_internal(struct gp_tensor *t, uint8_t operation, struct gp_request **ret_request);
/* Sends the tensor's state to `state` (NULL: not to this rank), as a round of all ranks (W16). */
int push_save(struct gp_tensor *t, void *state, struct gp_request **ret_request);
/* Sets the tensor's state from `state` of rank `root` (NULL on the others), after so many `steps`.
 * The parameters are written to `parameters`, unless that is NULL. */
int push_restore(struct gp_tensor *t, uint32_t root, const void *state, void *parameters,
                 uint64_t steps, struct gp_request **ret_request);

#endif
