/* Routes: which lane owns each piece of a tensor, the first one and each later one. With the job's
 * lock, in the control thread. */
#ifndef GRADPOOL_CLIENT_LIB_DECLARE_ROUTE_H
#define GRADPOOL_CLIENT_LIB_DECLARE_ROUTE_H

#include "client/lib/job/tensor.h"

/* Makes the pieces of a declared tensor. -EPROTO: no sound route; -ENOMEM, -ENOSPC. */
int route_take(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route);
/* Gives pieces their new owners, and tensors their new ranks. */
void route_change(struct gp_job *job, const Gradpool__Wire__RouteChange *change);

#endif
