/* Memory that fabric_ofi has registered: regions lent to peers, and local pools. */
#ifndef GRADPOOL_WIRE_OFI_MEMORY_H
#define GRADPOOL_WIRE_OFI_MEMORY_H

#include "svc/base/list.h"
#include "svc/wire/region.h"

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

struct ofi_pool {
    struct list node;
    char *base;
    size_t bytes;
    struct fid_mr *mr;
};

struct ofi_memory {
    struct fid_domain *domain;
    uint64_t mode; /* mr_mode that the provider asks of us */
    uint64_t key_mask;
    struct list regions, pools;
};

void ofi_memory_init(struct ofi_memory *m, struct fid_domain *domain, const struct fi_info *info);
/* Closes every registration; the memory itself is others'. */
void ofi_memory_fini(struct ofi_memory *m);

/* Registers with remote rights under a random key, or counts one more user of the same memory.
 * Errors: -ENOMEM, or what the provider says. */
int ofi_memory_lend(struct ofi_memory *m, const struct region *region,
                    struct ofi_region **ret_region);
/* The last user closes the registration. */
void ofi_memory_return(struct ofi_region *region);
/* What a peer needs to name the region's first byte. */
uint64_t ofi_region_address(const struct ofi_memory *m, const struct ofi_region *region);

/* Registers without remote rights, where the provider wants local memory registered at all;
 * otherwise there is nothing to do and nothing is remembered. */
int ofi_memory_pool(struct ofi_memory *m, void *base, size_t bytes);
void ofi_memory_pool_end(struct ofi_memory *m, void *base);
/* The provider's descriptor of local memory: NULL where none is needed, or for a pool that was
 * never registered (the provider then refuses the operation). */
void *ofi_memory_descriptor(const struct ofi_memory *m, const void *local);
/* For buffers with an owner of their own: `ret_mr` may become NULL when none is needed. */
int ofi_memory_register_local(struct ofi_memory *m, void *base, size_t bytes,
                              struct fid_mr **ret_mr);

#endif
