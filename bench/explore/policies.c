/* Names and settings of policies. */
#include "bench/explore/policies.h"

#include <stdio.h>

#define POLICIES_S 1e9 /* nanoseconds of a second */

static struct world_policy *policies_add(struct world_policy *policies, size_t *count,
                                         const char *name)
{
    struct world_policy *policy = &policies[(*count)++];
    *policy = (struct world_policy){0};
    snprintf(policy->name, sizeof policy->name, "%s", name);
    return policy;
}

static struct world_policy *policies_add_fixed(struct world_policy *policies, size_t *count,
                                               enum fixed_rule rule, const char *name,
                                               uint32_t workers)
{
    struct world_policy *policy = policies_add(policies, count, name);
    policy->is_fixed = true;
    policy->rule = rule;
    policy->workers = workers;
    return policy;
}

/* Adds the policies that restart the whole job at each change. A restart takes the time given by
 * the stream, or a third of this time. Each of these two variants is added with two hold times. */
static void policies_add_restarts(struct world_policy *policies, size_t *count,
                                  const struct stream_costs *costs)
{
    for (int i = 0; i < 4; i++) {
        double restart_s = costs->restart_s / (i < 2 ? 3 : 1);
        double hold_s = costs->hold_s * (i % 2 ? 2 : 1);
        char name[WORLD_NAME_BYTES];
        snprintf(name, sizeof name, "restart-%.2g/%.3g", restart_s, hold_s);
        struct world_policy *policy = policies_add(policies, count, name);
        policy->restart_s = restart_s;
        policy->options.hold_ns = (uint64_t)(hold_s * POLICIES_S);
        policy->options.resize_ns = (uint64_t)(restart_s * POLICIES_S);
        policy->options.holds_growth = true;
    }
}

size_t policies_of(const struct trial_stream *stream,
                   struct world_policy ret_policies[POLICIES_MAX])
{
    size_t count = 0;
    for (uint32_t i = 0; i < stream->static_count; i++) {
        char name[WORLD_NAME_BYTES];
        snprintf(name, sizeof name, "fifo-%u", stream->static_w[i]);
        policies_add_fixed(ret_policies, &count, FIXED_FIFO, name, stream->static_w[i]);
    }
    struct world_policy *noreuse = policies_add(ret_policies, &count, "noreuse");
    noreuse->options.never_rests = noreuse->options.wastes_ended = true;
    policies_add(ret_policies, &count, "eps")->options.never_rests = true;
    policies_add(ret_policies, &count, "rest");
    policies_add(ret_policies, &count, "preload")->preloads = true;
    policies_add_restarts(ret_policies, &count, &stream->costs);
    return count;
}

size_t policies_of_stages(uint32_t narrow, struct world_policy ret_policies[POLICIES_MAX])
{
    size_t count = 0;
    policies_add_fixed(ret_policies, &count, FIXED_FIFO, "fifo", narrow);
    policies_add_fixed(ret_policies, &count, FIXED_PRIORITY, "priority", narrow);
    policies_add_fixed(ret_policies, &count, FIXED_GREEDY, "greedy", narrow);
    policies_add(ret_policies, &count, "eps")->options.never_rests = true;
    policies_add(ret_policies, &count, "rest");
    return count;
}
