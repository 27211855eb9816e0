/* Memory that fabric_ofi has registered with libfabric: regions lent to peers, and local pools. */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_MEMORY_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_MEMORY_H

#include "svc/base/list.h"
#include "svc/fabric/region.h"

#include <rdma/fi_domain.h>
#include <stdint.h>

/* A lent region: registered once, shared by the connections that lend it. */
struct ofi_region {
    struct list node;
    void *base;
    size_t bytes;
    struct fid_mr *mr;
    unsigned users;
};

struct ofi_memory;

/* -ENOMEM. */
int ofi_memory_create(struct fid_domain *domain, const struct fi_info *info,
                      struct ofi_memory **ret_memory);
/* Closes every registration, not the memory itself. NULL is fine. */
void ofi_memory_destroy(struct ofi_memory *m);

/* Registers with remote rights under a random key, or counts one more user of the same memory.
 * Errors: -ENOMEM, or the provider's. */
int ofi_memory_lend(struct ofi_memory *m, const struct region *region,
                    struct ofi_region **ret_region);
/* The last user closes the registration. */
void ofi_memory_return(struct ofi_region *region);
/* The address of the region's first byte, as a peer names it. */
uint64_t ofi_region_address(const struct ofi_memory *m, const struct ofi_region *region);

/* Registers without remote rights. No effect where the provider takes local memory as it is. */
int ofi_memory_pool(struct ofi_memory *m, void *base, size_t bytes);
void ofi_memory_pool_end(struct ofi_memory *m, void *base);
/* The provider's descriptor of local memory; NULL where none is needed. -EINVAL: one is needed, and
 * the memory is in no pool. */
int ofi_memory_descriptor(const struct ofi_memory *m, const void *local, void **ret_descriptor);
/* Registers buffers whose owner keeps the registration; `ret_mr` becomes NULL where none is needed.
 */
int ofi_memory_register_local(struct ofi_memory *m, void *base, size_t bytes,
                              struct fid_mr **ret_mr);

#endif
