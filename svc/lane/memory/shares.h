/* Tenants' shares of limited resources of an aggregator process: address space, mappings and
 * descriptors. Any thread may call these functions. shares_allow(), shares_add() and shares_used()
 * lock a mutex. RULES.md: A76. */
#ifndef GRADPOOL_LANE_MEMORY_SHARES_H
#define GRADPOOL_LANE_MEMORY_SHARES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum share_kind {
    SHARE_LENT,        /* address space in bytes */
    SHARE_MAPPINGS,    /* number of mappings (vm.max_map_count) */
    SHARE_DESCRIPTORS, /* number of descriptors (RLIMIT_NOFILE) */
    SHARE_KINDS,
};

/* Returns whether the tenant may use `more`. `has_others`: other tenants exist. In this case each
 * tenant may use at most half of the limit, and the last part of the limit is reserved for tenants
 * that use little. */
bool shares_allow(const char *tenant, bool has_others, enum share_kind kind, uint64_t more);
/* Adds `more` to the tenant's use; may be negative. */
void shares_add(const char *tenant, enum share_kind kind, int64_t more);
uint64_t shares_used(const char *tenant, enum share_kind kind);
/* Returns the limit of the process, for all tenants together. */
uint64_t shares_most(enum share_kind kind);

/* Replaces the limit of the process in tests; 0: the real limit. */
void shares_pretend(enum share_kind kind, uint64_t most);

#endif
