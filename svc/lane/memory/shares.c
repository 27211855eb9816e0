/* Counts each tenant's use of the process's address space, mappings and descriptors. Owns the
 * counters, which exist until the process ends and are protected by one lock. A tenant that uses
 * nothing has no row. RULES.md: A76. */
#include "svc/lane/memory/shares.h"

#include "svc/base/list.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define NAME_BYTES 128
/* Address space of a process on x86-64: 47 bits. */
#define ADDRESS_SPACE_BYTES (UINT64_C(1) << 47)
#define MAPPINGS_DEFAULT 65530
/* Divisors of a resource. 1/PART_PROCESS of the resource is for the process itself. 1/PART_KEPT is
 * reserved for tenants that use little. A tenant that uses at most 1/PART_LITTLE uses little. */
#define PART_PROCESS 16
#define PART_KEPT 8
#define PART_LITTLE 128

struct tenant_share {
    struct list link;
    char tenant[NAME_BYTES];
    uint64_t used[SHARE_KINDS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list tenants = {&tenants, &tenants};
static uint64_t used_by_all[SHARE_KINDS], pretended[SHARE_KINDS];

static uint64_t mappings_max(void)
{
    unsigned long long most;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (!file)
        return MAPPINGS_DEFAULT;
    int got = fscanf(file, "%llu", &most);
    fclose(file);
    return got == 1 ? most : MAPPINGS_DEFAULT;
}

static uint64_t limit_of(int resource, uint64_t most)
{
    struct rlimit limit;
    bool is_limited =
        getrlimit((__rlimit_resource_t)resource, &limit) == 0 && limit.rlim_cur < most;
    return is_limited ? limit.rlim_cur : most;
}

uint64_t shares_most(enum share_kind kind)
{
    if (pretended[kind])
        return pretended[kind];
    switch (kind) {
    case SHARE_LENT: return limit_of(RLIMIT_AS, ADDRESS_SPACE_BYTES);
    case SHARE_MAPPINGS: return mappings_max();
    default: return limit_of(RLIMIT_NOFILE, UINT64_C(1) << 30);
    }
}

void shares_pretend(enum share_kind kind, uint64_t most) { pretended[kind] = most; }

static struct tenant_share *find(const char *tenant)
{
    list_for_each_entry (struct tenant_share, share, &tenants, link)
        if (strcmp(share->tenant, tenant) == 0)
            return share;
    return NULL;
}

static bool fits(uint64_t most, uint64_t all, uint64_t own, uint64_t more, bool has_others)
{
    uint64_t for_tenants = most - most / PART_PROCESS;
    if (more == 0)
        return true;
    if (more > for_tenants || all + more > for_tenants)
        return false;
    if (!has_others)
        return true;
    if (own + more > most / 2)
        return false;
    return all + more <= for_tenants - most / PART_KEPT || own + more <= most / PART_LITTLE;
}

bool shares_allow(const char *tenant, bool has_others, enum share_kind kind, uint64_t more)
{
    uint64_t most = shares_most(kind);
    pthread_mutex_lock(&lock);
    const struct tenant_share *share = find(tenant);
    bool is_allowed =
        fits(most, used_by_all[kind], share ? share->used[kind] : 0, more, has_others);
    pthread_mutex_unlock(&lock);
    return is_allowed;
}

static struct tenant_share *find_or_add(const char *tenant)
{
    struct tenant_share *share = find(tenant);
    if (share || !(share = calloc(1, sizeof *share)))
        return share;
    snprintf(share->tenant, sizeof share->tenant, "%s", tenant);
    list_append(&tenants, &share->link);
    return share;
}

static bool has_nothing(const struct tenant_share *share)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < SHARE_KINDS; kind++)
        sum |= share->used[kind];
    return sum == 0;
}

/* Adds `more` to a counter that never falls below 0. A use that could not be added, because there
 * was no memory for the row of the tenant, is subtracted later all the same. */
static void add(uint64_t *used, int64_t more)
{
    *used = more < 0 && (uint64_t)-more > *used ? 0 : *used + (uint64_t)more;
}

void shares_add(const char *tenant, enum share_kind kind, int64_t more)
{
    pthread_mutex_lock(&lock);
    struct tenant_share *share = more == 0 ? NULL : find_or_add(tenant);
    if (share) {
        add(&share->used[kind], more);
        add(&used_by_all[kind], more);
    }
    if (share && has_nothing(share)) {
        list_remove(&share->link);
        free(share);
    }
    pthread_mutex_unlock(&lock);
}

uint64_t shares_used(const char *tenant, enum share_kind kind)
{
    pthread_mutex_lock(&lock);
    const struct tenant_share *share = find(tenant);
    uint64_t used = share ? share->used[kind] : 0;
    pthread_mutex_unlock(&lock);
    return used;
}
