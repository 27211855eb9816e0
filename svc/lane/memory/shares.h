/* Tenants' shares of the limited resources of an aggregator process: address space, mappings and
 * descriptors. Any thread may call; lending and connecting take a lock. RULES.md: A76. */
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

/* True when the tenant may have `more`. `has_others`: other tenants exist, so that no tenant has
 * more than half, and a last part is kept for tenants that have little. */
bool shares_allow(const char *tenant, bool has_others, enum share_kind kind, uint64_t more);
/* Counts `more` for the tenant; negative: the tenant gives it back. */
void shares_add(const char *tenant, enum share_kind kind, int64_t more);
uint64_t shares_used(const char *tenant, enum share_kind kind);
/* The process's limit, for all tenants together. */
uint64_t shares_most(enum share_kind kind);

/* For tests: replaces the process's limit; 0: the real one. */
void shares_pretend(enum share_kind kind, uint64_t most);

#endif
