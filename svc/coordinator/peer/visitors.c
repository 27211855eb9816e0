/* Limits the number of TCP control connections, and closes a connection when the limit is reached.
 * Some descriptors are reserved for the Unix socket, so that operators can always connect. A
 * connection that has joined a job is never closed (RULES.md: K23). */
#include "svc/coordinator/peer/visitors.h"

#include "svc/base/log.h"
#include "svc/coordinator/job/quota.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

#define KEPT_BACK 64 /* descriptors reserved for the Unix socket, files and new processes */
/* A visitor may be about to join a job if its last message is younger than this time. Such a
 * visitor is closed only when no descriptor is left. */
#define BURST_NS NS_PER_S

static uint64_t descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return UINT64_MAX;
    return limit.rlim_cur > 4 * KEPT_BACK ? limit.rlim_cur - KEPT_BACK : limit.rlim_cur / 4 * 3;
}

/* Counts the descriptors. The number of the newest descriptor would not show how many are in use,
 * because the kernel reuses low numbers. */
bool visitors_are_many(const struct service *s)
{
    return s->door->outer_descriptors >= descriptors();
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

void visitors_forget(struct peer *p)
{
    if (list_is_empty(&p->visit))
        return;
    list_remove(&p->visit);
    p->service->door->visitors_count--;
}

static void visitors_add(struct peer *p)
{
    p->heard_ns = clock_now_ns();
    list_append(&p->service->door->visitors, &p->visit);
    p->service->door->visitors_count++;
}

void visitors_heard(struct peer *p)
{
    if (list_is_empty(&p->visit))
        return;
    visitors_forget(p);
    if (!p->session && !p->aggregator)
        visitors_add(p);
}

void visitors_return(struct peer *p)
{
    if (!p->is_local && list_is_empty(&p->visit))
        visitors_add(p);
}

/* Compares the hosts of two addresses such as "10.0.0.7:4242", without the ports. */
static bool have_one_address(const struct peer *a, const struct peer *b)
{
    const char *left = channel_peer(a->channel), *right = channel_peer(b->channel);
    const char *end = strrchr(left, ':');
    size_t bytes = end ? (size_t)(end - left) + 1 : strlen(left) + 1;
    return strncmp(left, right, bytes) == 0;
}

/* Returns the visitor with the oldest last message, which will be closed. Visitors with the address
 * of the new connection are closed first, so that one address cannot displace other addresses. */
static struct peer *find_victim(struct service *s, const struct peer *newcomer)
{
    list_for_each_entry (struct peer, p, &s->door->visitors, visit)
        if (have_one_address(p, newcomer))
            return p;
    return list_is_empty(&s->door->visitors)
               ? NULL
               : list_entry(s->door->visitors.next, struct peer, visit);
}

static void send_off(struct service *s, struct peer *victim)
{
    log_warn_rarely("%s was closed, because %zu connections belong to no job and this one is the "
                    "oldest; raise --idle-connections-max and ulimit -n",
                    channel_peer(victim->channel), s->door->visitors_count);
    visitors_forget(victim);
    peer_break(victim);
}

bool visitors_make_room(struct service *s, struct peer *p)
{
    uint64_t most = least(s->options->limits.most[LIMIT_IDLE_CONNECTIONS], descriptors() / 4);
    bool are_many = visitors_are_many(s);
    struct peer *victim = are_many || s->door->visitors_count >= most ? find_victim(s, p) : NULL;
    if (are_many && !victim)
        return false;
    if (victim && (are_many || clock_now_ns() - victim->heard_ns >= BURST_NS))
        send_off(s, victim);
    visitors_add(p);
    return true;
}

/* Returns the number of descriptors that one tenant may use: half of all descriptors if there are
 * several tenants, and otherwise all. */
static uint64_t share(const struct service *s)
{
    return tenants_has_one(s) ? descriptors() : descriptors() / 2;
}

int visitors_admit(struct peer *p, struct tenant *tenant, struct err *err)
{
    struct service *s = p->service;
    char who[192];
    tenant_title(tenant, who, sizeof who);
    int error =
        limits_check(&tenant->limits, LIMIT_TENANT_CONNECTIONS, who, tenant->connections, 1, err);
    if (error == 0 && tenant->connections >= share(s))
        error = err_set(
            err, -EDQUOT,
            "%.128s: this tenant has %u control connections, and more than %" PRIu64
            " would take descriptors from other tenants; ask the operator to raise ulimit -n",
            who, tenant->connections, share(s));
    if (error < 0)
        log_warn_rarely("%s: refused: %s", channel_peer(p->channel), err->text);
    return error;
}
