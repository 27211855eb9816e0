/* Measures visits to the coordinator. Joins are calls of a client; other visits are commands,
 * including the start of their processes. Owns the process that joins, with or without a tenant's
 * key. */
#include "bench/fences/visits.h"

#include "bench/fences/operator.h"
#include "bench/lib/host.h"
#include "client/gradpool.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define JOINS_NS (600 * NS_PER_S)

const char *visit_name(enum visit visit)
{
    static const char *const names[VISITS] = {"join.tcp",    "join.unix", "status.tcp",
                                              "status.unix", "add.unix",  "revoke.unix"};
    return names[visit];
}

static void note(struct visited *v, enum visit visit, uint64_t began_ns, int code)
{
    double took_s = (double)(clock_now_ns() - began_ns) / 1e9;
    if (took_s > v->longest_s[visit])
        v->longest_s[visit] = took_s;
    v->failed += code < 0;
}

/* --- joins --- */

static void join_new_job(const char *endpoint, uint32_t number, struct visited *v, enum visit visit)
{
    char name[64];
    gp_client *client = NULL;
    gp_job *job;
    snprintf(name, sizeof name, "visit-%d-%u", (int)getpid(), number);
    const gp_job_spec spec = {.name = name, .workers = 1};
    uint64_t began_ns = clock_now_ns();
    int r = gp_connect(endpoint, NULL, &client);
    if (r == 0)
        r = gp_job_join(client, &spec, &job);
    note(v, visit, began_ns, r);
    if (r < 0)
        fprintf(stderr, "gradpool-bench: a join over %s failed: %s\n", endpoint, gp_last_error());
    gp_disconnect(client);
}

/* Joins in a separate process, so that this process does not keep the tenant's key. */
static int join_jobs(const char *endpoint, const char *key, uint32_t count, struct visited *shared,
                     enum visit visit)
{
    pid_t pid = process_fork(SIGKILL);
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        if (key)
            setenv("GRADPOOL_KEY_FILE", key, 1);
        for (uint32_t i = 0; i < count; i++)
            join_new_job(endpoint, i, shared, visit);
        _exit(0);
    }
    return process_reap(pid, clock_now_ns() + JOINS_NS) == 0 ? 0 : -EIO;
}

static int make_joins(const struct visitor *who, uint32_t count, struct visited *v)
{
    struct visited *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return -ENOMEM;
    int r = join_jobs(who->listen, who->tenant_key, count, shared, VISIT_JOIN_TCP);
    if (r == 0)
        r = join_jobs(who->service->endpoint, NULL, count, shared, VISIT_JOIN_UNIX);
    *v = *shared;
    munmap(shared, sizeof *shared);
    return r;
}

/* --- commands --- */

static void make_looks(const struct visitor *who, uint32_t count, struct visited *v)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t began_ns = clock_now_ns();
        int r = operator_ask_status(who->service, who->listen, who->operator_key);
        note(v, VISIT_STATUS_TCP, began_ns, r);
        began_ns = clock_now_ns();
        r = operator_ask_status(who->service, who->service->endpoint, NULL);
        note(v, VISIT_STATUS_UNIX, began_ns, r);
    }
}

static void make_tenants(const struct visitor *who, uint32_t count, struct visited *v)
{
    static unsigned number;
    for (uint32_t i = 0; i < count; i++) {
        char name[32], key[KEY_PATH_BYTES];
        snprintf(name, sizeof name, "spare-%u", ++number);
        uint64_t began_ns = clock_now_ns();
        int r = operator_add_tenant(who->service, name, false, key);
        note(v, VISIT_ADD_UNIX, began_ns, r);
        began_ns = clock_now_ns();
        r = operator_revoke_tenant(who->service, name);
        note(v, VISIT_REVOKE_UNIX, began_ns, r);
    }
}

int visits_make(const struct visitor *visitor, uint32_t count, struct visited *ret_visited)
{
    int r = make_joins(visitor, count, ret_visited);
    if (r < 0)
        return r;
    make_looks(visitor, count, ret_visited);
    make_tenants(visitor, count, ret_visited);
    return 0;
}
