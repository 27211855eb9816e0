/* Accesses mapped pages in ascending order, a few at a time. On a host where an access would
 * allocate a missing page, this file accesses no page. S16 of svc/fabric/shm/README.md. */
#include "svc/fabric/shm/map/warmth.h"

#include "svc/base/clock.h"
#include "svc/fabric/group.h"
#include "svc/fabric/shm/map/lent.h"
#include "svc/fabric/shm/map/sigbus.h"

#include <stdlib.h>
#include <unistd.h>

#define PAGES_AT_ONCE 256
#define TIMES 2
#define AHEAD_NS (2 * NS_PER_S)
/* CPU time after which accessing a set of newly mapped pages is given up */
#define USED_NS_MAX NS_PER_S

struct shm_warmth *shm_warmth_create(const struct shm_lent *lent)
{
    struct shm_warmth *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->lent = lent;
    list_init(&w->link);
    return w;
}

void shm_warmth_destroy(struct shm_warmth *w) { free(w); }

void shm_warmth_note(struct shm_warmth *w, uint64_t first, uint64_t end)
{
    bool has_cold = w->cold < w->cold_end;
    w->cold = has_cold && w->cold < first ? w->cold : first;
    w->cold_end = has_cold && w->cold_end > end ? w->cold_end : end;
    w->used_ns = 0;
}

static void warmth_touch(const struct shm_lent *lent, uint64_t page, uint64_t end)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t first; page < end; page++) {
        for (first = page; page < end && shm_lent_knows_page(lent, page);)
            page++;
        if (page > first)
            shm_sigbus_touch((char *)lent->base + first * page_bytes, (page - first) * page_bytes);
    }
}

void shm_warmth_allow(struct shm_warmth *w, const struct fabric_group *group)
{
    uint64_t now_ns = clock_now_ns();
    bool may = true;
    for (; group; group = group->above)
        may &= group->until_ns[FABRIC_BILL_WARMTH] <= now_ns + AHEAD_NS;
    atomic_store_explicit(&w->may, may, memory_order_relaxed);
}

void shm_warmth_charge(struct shm_warmth *w, struct fabric_group *group)
{
    uint64_t now_ns = clock_now_ns(), spent_ns = atomic_exchange(&w->spent_ns, 0);
    for (; group && spent_ns > 0; group = group->above)
        group->until_ns[FABRIC_BILL_WARMTH] =
            (group->until_ns[FABRIC_BILL_WARMTH] > now_ns ? group->until_ns[FABRIC_BILL_WARMTH]
                                                          : now_ns) +
            TIMES * spent_ns;
}

static bool warmth_may_go_on(const struct shm_warmth *w)
{
    return w->lent->fails && atomic_load_explicit(&w->may, memory_order_relaxed) &&
           w->used_ns < USED_NS_MAX;
}

bool shm_warmth_work(struct shm_warmth *w)
{
    uint64_t end = warmth_may_go_on(w) ? w->cold_end : 0, began_ns = clock_thread_cpu_ns();
    uint64_t stop = end < w->cold + PAGES_AT_ONCE ? end : w->cold + PAGES_AT_ONCE;
    warmth_touch(w->lent, w->cold, stop);
    if (stop > w->cold)
        w->cold = stop;
    uint64_t spent_ns = clock_thread_cpu_ns() - began_ns;
    w->used_ns += spent_ns;
    atomic_fetch_add(&w->spent_ns, spent_ns);
    atomic_store_explicit(&w->is_warm, stop >= end, memory_order_relaxed);
    return stop < end;
}
