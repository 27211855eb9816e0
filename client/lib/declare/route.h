/* A route names the lane that owns each piece of a tensor. These functions handle the first route
 * of a tensor and all later routes. Called in the control thread, with the job's lock held. */
#ifndef GRADPOOL_CLIENT_LIB_DECLARE_ROUTE_H
#define GRADPOOL_CLIENT_LIB_DECLARE_ROUTE_H

#include "client/lib/job/tensor.h"

/* Creates the pieces of a declared tensor. -EPROTO: invalid route; -ENOMEM, -ENOSPC. */
int route_take(struct gp_tensor *t, const Gradpool__Wire__TensorRoute *route);
/* Sets new owners of pieces, and new ranks of tensors. */
void route_change(struct gp_job *job, const Gradpool__Wire__RouteChange *change);

#endif
