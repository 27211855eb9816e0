/* Memory that fabric_ofi has registered with libfabric: regions lent to peers, and local memory. */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_MEMORY_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_MEMORY_H

#include "svc/base/list.h"
#include "svc/fabric/region.h"

#include <rdma/fi_domain.h>
#include <stdint.h>

/* A lent region. It is registered once for all connections that lend it. */
struct ofi_region {
    struct list node;
    void *base;
    size_t bytes;
    struct fid_mr *mr;
    unsigned users;
};

struct ofi_memory;

/* Creates the state. Returns 0 or -ENOMEM. */
int ofi_memory_create(struct fid_domain *domain, const struct fi_info *info,
                      struct ofi_memory **ret_memory);
/* Closes every registration. The memory itself stays. NULL is fine. */
void ofi_memory_destroy(struct ofi_memory *m);

/* Registers memory with remote rights under a random key, or increments the number of users if it
 * is registered already. Errors: -ENOMEM, or the provider's. */
int ofi_memory_lend(struct ofi_memory *m, const struct region *region,
                    struct ofi_region **ret_region);
/* Decrements the number of users. At 0 the registration is closed. */
void ofi_memory_return(struct ofi_region *region);
/* Returns the address of the region's first byte in the form that a peer uses. */
uint64_t ofi_region_address(const struct ofi_memory *m, const struct ofi_region *region);

/* Registers memory without remote rights. Does nothing where the provider accepts local memory
 * without registration. */
int ofi_memory_pool(struct ofi_memory *m, void *base, size_t bytes);
void ofi_memory_pool_end(struct ofi_memory *m, void *base);
/* Returns the provider's descriptor of local memory; NULL where none is needed. -EINVAL: one is
 * needed, and the memory is not registered. */
int ofi_memory_descriptor(const struct ofi_memory *m, const void *local, void **ret_descriptor);
/* Registers buffers whose owner keeps the registration. `ret_mr` becomes NULL where none is
 * needed. */
int ofi_memory_register_local(struct ofi_memory *m, void *base, size_t bytes,
                              struct fid_mr **ret_mr);

#endif
