/* The event queue of a fabric_ofi. */
#ifndef GRADPOOL_FABRIC_OFI_EVENTS_H
#define GRADPOOL_FABRIC_OFI_EVENTS_H

#include "svc/fabric/ofi/provider/types.h"

/* Reads the event queue until it is empty or the batch is full. An armed queue is skipped, because
 * its descriptor becomes readable (O5). */
void ofi_events_read(struct ofi_fabric *f, struct ofi_batch *batch);

#endif
