/* Declaration of tensors, for the other files of the library. */
#ifndef GRADPOOL_CLIENT_LIB_DECLARE_DECLARE_H
#define GRADPOOL_CLIENT_LIB_DECLARE_DECLARE_H

#include "client/lib/job/tensor.h"

/* Declares a tensor with a reserved name. All ranks call this function. */
int declare_internal(struct gp_job *job, const char *name, enum gp_dtype dtype, uint64_t elements,
                     uint64_t timeout_ns, struct gp_tensor **ret_tensor);
/* Declares the hidden tensor of a job with backup workers. Its announcements close rounds (W22). */
int declare_leader(struct gp_job *job, uint64_t timeout_ns, struct gp_tensor **ret_tensor);

#endif
