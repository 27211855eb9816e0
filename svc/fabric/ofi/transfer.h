/* Reads and writes of a connection of fabric_ofi, and the completions of all its operations. */
#ifndef GRADPOOL_FABRIC_OFI_TRANSFER_H
#define GRADPOOL_FABRIC_OFI_TRANSFER_H

#include "svc/fabric/ofi/provider/types.h"

/* Implement fabric_read(), fabric_write(), fabric_write_word() and fabric_notify(). `word` is NULL
 * for fabric_write(). */
int ofi_transfer_read(struct ofi_conn *c, uint32_t id, uint64_t offset, void *local, size_t bytes,
                      void *context);
int ofi_transfer_write(struct ofi_conn *c, uint32_t id, uint64_t offset, const void *local,
                       size_t bytes, const uint32_t *word, void *context);
int ofi_transfer_notify(struct ofi_conn *c, uint32_t word, void *context);
/* Converts completions into events. Returns true if the queue is empty, false if the batch is
 * full. */
bool ofi_transfer_drain(struct ofi_conn *c, struct ofi_batch *batch);

#endif
