/* Reading of the connections that are not armed, in turns. */
#ifndef GRADPOOL_FABRIC_OFI_VISIT_H
#define GRADPOOL_FABRIC_OFI_VISIT_H

#include "svc/fabric/ofi/provider/types.h"

/* Reads each active connection that this poll has not read yet, by tenant, by job, until the batch
 * is full. If shares or times are used up, the next poll continues there, and is_behind is set. */
void ofi_visit_active(struct ofi_fabric *f, struct ofi_batch *batch);

#endif
