/* Shares of tenants in what an aggregator process has once: address space, mappings and
 * descriptors. Any thread; takes a lock, for lending and connecting only. README: A76. */
#ifndef GRADPOOL_LANE_MEMORY_SHARES_H
#define GRADPOOL_LANE_MEMORY_SHARES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum share_kind {
    SHARE_LENT,        /* bytes of address space */
    SHARE_MAPPINGS,    /* vm.max_map_count */
    SHARE_DESCRIPTORS, /* RLIMIT_NOFILE */
    SHARE_KINDS,
};

/* Whether the tenant may have so much more. `has_others`: other tenants exist, so that no tenant
 * has more than half. A last part is kept for those that have little. */
bool shares_allow(const char *tenant, bool has_others, enum share_kind kind, uint64_t more);
/* The tenant takes so much more; negative: it gives that back. */
void shares_add(const char *tenant, enum share_kind kind, int64_t more);
uint64_t shares_used(const char *tenant, enum share_kind kind);
/* The process's whole of it, for all tenants. */
uint64_t shares_most(enum share_kind kind);

/* For tests: as if the process had so much; 0: what it has. */
void shares_pretend(enum share_kind kind, uint64_t most);

#endif
