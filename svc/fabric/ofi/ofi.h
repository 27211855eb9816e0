/* fabric_ofi implements fabric.h between hosts, with libfabric's connected endpoints. */
#ifndef GRADPOOL_FABRIC_OFI_OFI_H
#define GRADPOOL_FABRIC_OFI_OFI_H

#include "svc/base/library.h"
#include "svc/fabric/fabric.h"

/* Like fabric_open(); `options` is never NULL. Returns 0, -ENOSYS, -EADDRNOTAVAIL (no such
 * interface), -ELIBACC or -ELIBBAD (libfabric cannot be loaded), -ENOMEM or -EMFILE. */
int fabric_ofi_open(const struct fabric_options *options, struct fabric **ret_fabric);
/* Loads libfabric, and writes its version, or "missing" if the library cannot be loaded. */
void fabric_ofi_library(struct library *ret_row);

#endif
