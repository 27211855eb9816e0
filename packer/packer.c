/* Owns the table of policies and makes a plan from a request. Must never do I/O, read a clock or
 * use random numbers, and must never return a partial plan (P1, P2; README.md). */
#include "packer/packer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "packer/baseline/baseline.h"
#include "packer/policy/policy.h"

/* The table of policies; the first one is the default. */
#define POLICIES(X)                        \
    X("least-loaded", policy_least_loaded) \
    X("round-robin", policy_round_robin)   \
    X("hash", policy_hash)                 \
    X("dedicated", policy_dedicated)       \
    X("mxnet", policy_mxnet)               \
    X("paa", policy_paa)                   \
    X("shared", policy_shared)             \
    X("rate", policy_rate)                 \
    X("cycle", policy_cycle)

#define POLICY_NAME(name, place) name,
#define POLICY_PLACE(name, place) place,

static const char *const policy_names[] = {POLICIES(POLICY_NAME) NULL};
static const policy_place_fn policy_places[] = {POLICIES(POLICY_PLACE)};

const char *const *packer_policies(void) { return policy_names; }

const char *const *packer_offered_policies(void)
{
    static const char *const offered[] = {"shared", "least-loaded", "dedicated", NULL};

    return offered;
}

static policy_place_fn find_policy(const char *name)
{
    if (!name)
        return policy_places[0];
    for (size_t i = 0; policy_names[i]; i++)
        if (strcmp(policy_names[i], name) == 0)
            return policy_places[i];
    return NULL;
}

static int refuse_policy(const char *name, char *reason, size_t reason_bytes)
{
    char known[256] = "";
    size_t used = 0;

    for (size_t i = 0; policy_names[i] && used < sizeof(known); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                                 policy_names[i]);
    snprintf(reason, reason_bytes, "unknown policy \"%s\"; there are %s", name, known);
    return -EINVAL;
}

int packer_place(const struct packer_request *request, struct packer_plan *ret_plan, char *reason,
                 size_t reason_bytes)
{
    policy_place_fn place = find_policy(request->policy);
    struct placement placement;
    int error;

    if (!place)
        return refuse_policy(request->policy, reason, reason_bytes);
    error = placement_init(&placement, request, reason, reason_bytes);
    if (error == 0 && request->tensors_count > 0)
        error = place(&placement);
    if (error == 0)
        placement_finish(&placement, ret_plan);
    placement_fini(&placement);
    return error;
}

void packer_plan_fini(struct packer_plan *plan)
{
    if (!plan)
        return;
    free(plan->pieces);
    free(plan->shares);
    *plan = (struct packer_plan){0};
}
