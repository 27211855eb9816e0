/* Claims of pools whose site has no slots. Such a pool starts workers by itself, and its requests
 * about the job name the pool. While its connection exists, a second pool of the same job is
 * refused: two pools would start the same ranks. Owns struct slots_claim. */
#include "svc/coordinator/slots/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct slots_claim {
    struct list link;
    struct peer *peer;
    uint64_t pool;
    uint32_t pid;
    char job[JOB_NAME_BYTES_MAX + 1];
    char node[HOST_NAME_MAX + 1];
};

static void claim_free(struct slots_claim *claim)
{
    list_remove(&claim->link);
    free(claim);
}

void slots_claims_forget(const struct slots *slots, const struct peer *peer)
{
    list_for_each_safe_entry (struct slots_claim, claim, &slots->claims, link)
        if (!peer || claim->peer == peer)
            claim_free(claim);
}

static struct slots_claim *claim_find(const struct service *s, const struct tenant *tenant,
                                      const char *job)
{
    list_for_each_entry (struct slots_claim, claim, &s->works->slots->claims, link)
        if (claim->peer->tenant == tenant && strcmp(claim->job, job) == 0)
            return claim;
    return NULL;
}

int slots_check_claim(const struct service *s, const struct tenant *tenant, const char *job,
                      uint64_t pool, struct err *err)
{
    const struct slots_claim *claim = claim_find(s, tenant, job);
    if (!claim || claim->pool == pool)
        return 0;
    return err_set(err, -EEXIST,
                   "job %s has a pool already, on %s (pid %u); end that pool, or give this job "
                   "another name",
                   job, claim->node, claim->pid);
}

static int claim_check(const struct peer *p, const WIRE(JobsRequest) * request, struct err *err)
{
    const WIRE(PoolClaim) *claim = request->claim;
    const struct slots_job *job = slots_find_job(p->service, p->tenant, request->job);
    char name[SLOTS_TEXT_BYTES];
    if (claim->pool == 0 || !*request->job || !text_is_plain(request->job) ||
        !text_is_node(claim->node) || !*claim->node)
        return err_set(err, -EINVAL,
                       "a pool names its job, a number other than 0, and its host; install the "
                       "same version of gradpool on both hosts");
    if (job)
        return err_set(err, -EEXIST,
                       "job %s was submitted by %s already; give this one another name",
                       request->job, slots_pool_name(job->pool, name, sizeof name));
    return slots_check_claim(p->service, p->tenant, request->job, claim->pool, err);
}

/* Replaces the claim of this connection, and the claim of an earlier connection of this pool, whose
 * end the coordinator has not detected yet. */
static int claim_keep(struct peer *p, const WIRE(JobsRequest) * request)
{
    struct slots *slots = p->service->works->slots;
    struct slots_claim *claim = claim_find(p->service, p->tenant, request->job);
    if (claim)
        claim_free(claim);
    slots_claims_forget(slots, p);
    claim = calloc(1, sizeof *claim);
    if (!claim)
        return -ENOMEM;
    claim->peer = p;
    claim->pool = request->claim->pool;
    claim->pid = request->claim->pid;
    memcpy(claim->job, request->job, strlen(request->job) + 1);
    memcpy(claim->node, request->claim->node, strlen(request->claim->node) + 1);
    list_append(&slots->claims, &claim->link);
    return 0;
}

bool slots_may_look(struct peer *p, uint64_t id, const WIRE(JobsRequest) * request)
{
    struct err err;
    if (!request->claim)
        return true;
    if (claim_check(p, request, &err) < 0) {
        peer_fail(p, id, err.code, "%s", err.text);
        return false;
    }
    if (claim_keep(p, request) < 0) {
        peer_fail_memory(p, id);
        return false;
    }
    return true;
}
