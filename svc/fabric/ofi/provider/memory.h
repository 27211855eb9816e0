/* Memory that fabric_ofi has registered with libfabric: regions that are lent to peers, and local
 * memory. */
#ifndef GRADPOOL_FABRIC_OFI_PROVIDER_MEMORY_H
#define GRADPOOL_FABRIC_OFI_PROVIDER_MEMORY_H

#include "svc/base/list.h"
#include "svc/fabric/region.h"

#include <rdma/fi_domain.h>
#include <stdint.h>

/* A lent region, registered once for all connections that lend it. */
struct ofi_region {
    struct list node;
    void *base;
    size_t bytes;
    struct fid_mr *mr;
    unsigned users;
};

struct ofi_memory;

int ofi_memory_create(struct fid_domain *domain, const struct fi_info *info,
                      struct ofi_memory **ret_memory);
/* Closes all registrations. The memory itself is not freed. NULL is allowed. */
void ofi_memory_destroy(struct ofi_memory *m);

/* Registers memory with remote rights under a random key, or increments the number of users if the
 * memory is registered already. Returns 0, -ENOMEM or an error of the provider. */
int ofi_memory_lend(struct ofi_memory *m, const struct region *region,
                    struct ofi_region **ret_region);
/* Decrements the number of users, and closes the registration at 0. */
void ofi_memory_return(struct ofi_region *region);
/* Returns the address of the region's first byte, as a peer has to specify it. */
uint64_t ofi_region_address(const struct ofi_memory *m, const struct ofi_region *region);

/* Registers memory without remote rights. Does nothing if the provider does not require it. */
int ofi_memory_pool(struct ofi_memory *m, void *base, size_t bytes);
void ofi_memory_pool_end(struct ofi_memory *m, void *base);
/* Writes the provider's descriptor of local memory, or NULL if the provider requires none. Returns
 * 0, or -EINVAL if a descriptor is required but the memory is not registered. */
int ofi_memory_descriptor(const struct ofi_memory *m, const void *local, void **ret_descriptor);
/* Registers buffers. The caller owns the registration `ret_mr`, which is NULL if the provider
 * requires none. */
int ofi_memory_register_local(struct ofi_memory *m, void *base, size_t bytes,
                              struct fid_mr **ret_mr);

#endif
