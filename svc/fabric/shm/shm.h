/* fabric_shm implements fabric.h for one host, over shared memory. */
#ifndef GRADPOOL_FABRIC_SHM_SHM_H
#define GRADPOOL_FABRIC_SHM_SHM_H

#include "svc/fabric/fabric.h"

/* Like fabric_open(); `options` is never NULL. Returns 0, -ENOMEM, -EMFILE or -ENFILE. */
int fabric_shm_open(const struct fabric_options *options, struct fabric **ret_fabric);

#endif
