/* Owns registrations of memory, but not the memory. Only a lent region has remote rights, under a
 * key that cannot be guessed (O3). A lane's slots have no remote rights (W1). */
#include "svc/fabric/ofi/provider/memory.h"

#include "svc/fabric/ofi/provider/names.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <sys/random.h>

#define KEY_ATTEMPTS 8

struct ofi_pool {
    struct list node;
    char *base;
    size_t bytes;
    struct fid_mr *mr;
};

struct ofi_memory {
    struct fid_domain *domain;
    uint64_t mode; /* mr_mode that the provider requires */
    uint64_t key_mask;
    struct list regions, pools;
};

int ofi_memory_create(struct fid_domain *domain, const struct fi_info *info,
                      struct ofi_memory **ret_memory)
{
    size_t key_bytes = info->domain_attr->mr_key_size;
    struct ofi_memory *m = malloc(sizeof(*m));
    if (m == NULL)
        return -ENOMEM;
    *m = (struct ofi_memory){
        .domain = domain,
        .mode = (uint64_t)info->domain_attr->mr_mode,
        .key_mask =
            key_bytes >= sizeof(uint64_t) ? UINT64_MAX : (UINT64_C(1) << (8 * key_bytes)) - 1,
    };
    list_init(&m->regions);
    list_init(&m->pools);
    *ret_memory = m;
    return 0;
}

static void memory_free_pool(struct ofi_pool *pool)
{
    list_remove(&pool->node);
    fi_close(&pool->mr->fid);
    free(pool);
}

void ofi_memory_destroy(struct ofi_memory *m)
{
    if (m == NULL)
        return;
    list_for_each_safe_entry (struct ofi_region, region, &m->regions, node) {
        region->users = 1;
        ofi_memory_return(region);
    }
    list_for_each_safe (node, &m->pools)
        memory_free_pool(list_entry(node, struct ofi_pool, node));
    free(m);
}

static int random_key(const struct ofi_memory *m, uint64_t *ret_key)
{
    uint64_t key;
    if (getrandom(&key, sizeof(key), 0) != sizeof(key))
        return -EIO;
    *ret_key = key & m->key_mask;
    return 0;
}

/* Two registrations must not have the same key. If the provider's keys are short, several attempts
 * may be needed. */
static int register_memory(struct ofi_memory *m, void *base, size_t bytes, uint64_t access,
                           struct fid_mr **ret_mr)
{
    int error = -FI_ENOKEY;
    for (int i = 0; i < KEY_ATTEMPTS && error == -FI_ENOKEY; i++) {
        uint64_t key = 0;
        if (!(m->mode & FI_MR_PROV_KEY) && random_key(m, &key) < 0)
            return -EIO;
        error = fi_mr_reg(m->domain, base, bytes, access, 0, key, 0, ret_mr, NULL);
    }
    return ofi_errno(error);
}

static struct ofi_region *find_region(struct ofi_memory *m, const struct region *region)
{
    list_for_each_entry (struct ofi_region, known, &m->regions, node)
        if (known->base == region->base && known->bytes == region->bytes)
            return known;
    return NULL;
}

int ofi_memory_lend(struct ofi_memory *m, const struct region *region,
                    struct ofi_region **ret_region)
{
    struct ofi_region *known = find_region(m, region);
    if (known != NULL) {
        known->users++;
        *ret_region = known;
        return 0;
    }
    struct ofi_region *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return -ENOMEM;
    int error = register_memory(m, region->base, region->bytes,
                                FI_SEND | FI_REMOTE_READ | FI_REMOTE_WRITE, &fresh->mr);
    if (error < 0) {
        free(fresh);
        return error;
    }
    fresh->base = region->base;
    fresh->bytes = region->bytes;
    fresh->users = 1;
    list_append(&m->regions, &fresh->node);
    *ret_region = fresh;
    return 0;
}

void ofi_memory_return(struct ofi_region *region)
{
    if (--region->users > 0)
        return;
    list_remove(&region->node);
    fi_close(&region->mr->fid);
    free(region);
}

uint64_t ofi_region_address(const struct ofi_memory *m, const struct ofi_region *region)
{
    return m->mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)region->base : 0;
}

int ofi_memory_register_local(struct ofi_memory *m, void *base, size_t bytes,
                              struct fid_mr **ret_mr)
{
    if (m->mode & FI_MR_LOCAL)
        return register_memory(m, base, bytes, FI_SEND | FI_RECV | FI_READ | FI_WRITE, ret_mr);
    *ret_mr = NULL;
    return 0;
}

int ofi_memory_pool(struct ofi_memory *m, void *base, size_t bytes)
{
    if (!(m->mode & FI_MR_LOCAL))
        return 0;
    struct ofi_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return -ENOMEM;
    int error = ofi_memory_register_local(m, base, bytes, &pool->mr);
    if (error < 0) {
        free(pool);
        return error;
    }
    pool->base = base;
    pool->bytes = bytes;
    list_append(&m->pools, &pool->node);
    return 0;
}

void ofi_memory_pool_end(struct ofi_memory *m, void *base)
{
    list_for_each_safe_entry (struct ofi_pool, pool, &m->pools, node)
        if (pool->base == base)
            memory_free_pool(pool);
}

int ofi_memory_descriptor(const struct ofi_memory *m, const void *local, void **ret_descriptor)
{
    *ret_descriptor = NULL;
    if (!(m->mode & FI_MR_LOCAL))
        return 0;
    list_for_each_entry (const struct ofi_pool, pool, &m->pools, node) {
        if ((const char *)local >= pool->base && (const char *)local < pool->base + pool->bytes) {
            *ret_descriptor = fi_mr_desc(pool->mr);
            return 0;
        }
    }
    return -EINVAL;
}
