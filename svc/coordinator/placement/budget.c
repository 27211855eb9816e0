/* Free memory and bandwidth of lanes, as estimates for the packer. quota.c checks the final plan,
 * when all pieces are known (K35). */
#include "svc/coordinator/placement/budget.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"
#include "svc/coordinator/aggregator/busy_time.h"
#include "svc/coordinator/measure/measure.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int budgets_init(struct budgets *b, size_t nodes_max)
{
    *b = (struct budgets){.nodes = calloc(nodes_max + 1, sizeof *b->nodes),
                          .places = calloc(nodes_max + 1, sizeof *b->places),
                          .count = 1};
    if (!b->nodes || !b->places) {
        budgets_free(b);
        return -ENOMEM;
    }
    b->nodes[0] = (struct packer_node){UINT64_MAX, UINT64_MAX};
    return 0;
}

void budgets_free(struct budgets *b)
{
    free(b->nodes);
    free(b->places);
    *b = (struct budgets){0};
}

/* Returns the memory in use on the lane: the value that the lane reports, or the value that is
 * computed from the lane's pieces, whichever is larger. */
static uint64_t held_bytes(const struct lane *lane)
{
    const WIRE(LaneUse) *use = stats_of_lane(lane);
    uint64_t counted = lane->pieces * lane->piece_bytes + lane->ranks * lane->rank_bytes;
    return use && use->arena_bytes > counted ? use->arena_bytes : counted;
}

static uint64_t left_of(uint64_t all, uint64_t taken) { return all > taken ? all - taken : 0; }

/* --- network --- */

/* Returns the number of ranks on other hosts. If any joined rank is on another host, ranks that
 * have not joined are counted as well. */
static uint32_t remote_ranks(const struct job *job, const char *host)
{
    uint32_t here = 0, elsewhere = 0;
    for (uint32_t rank = 0; rank < job->workers; rank++) {
        const struct session *session = job->sessions[rank];
        if (session && strcmp(session->node, host) == 0)
            here++;
        else if (session)
            elsewhere++;
    }
    return elsewhere ? job->workers - here : 0;
}

/* Returns the bytes per second that the job moves over the host's network, for gradients and
 * results together. */
static uint64_t moved_per_s(const struct job *job, const char *host)
{
    uint64_t period_ns = profile_known(job->profile).period_ns, bytes = 0;
    for (size_t i = 0; i < job->shares_count && period_ns > 0; i++)
        if (strcmp(job->shares[i].lane->aggregator->node, host) == 0)
            bytes += job->shares[i].bytes;
    if (bytes == 0)
        return 0;
    return (uint64_t)(2.0 * (double)bytes * remote_ranks(job, host) * NS_PER_S / (double)period_ns);
}

/* Returns the free bytes per second of the host's network interface, for both directions
 * together. */
static uint64_t network_left(const struct lane *lane)
{
    uint64_t left = 2 * lane->network_bytes_per_s;
    if (left == 0)
        return UINT64_MAX;
    list_for_each (node, &lane->aggregator->service->jobs)
        left =
            left_of(left, moved_per_s(list_entry(node, struct job, link), lane->aggregator->node));
    return left;
}

uint64_t budgets_wire_bytes(const struct job *job, uint64_t bytes)
{
    uint32_t most = 0;
    list_for_each (node, &job->service->aggregators) {
        uint32_t ranks = remote_ranks(job, list_entry(node, struct aggregator, link)->node);
        most = ranks > most ? ranks : most;
    }
    return 2 * bytes * most;
}

/* --- nodes and lanes --- */

static size_t node_of(struct budgets *b, const struct lane *lane)
{
    const char *host = lane->aggregator->node;
    for (size_t i = 1; i < b->count; i++)
        if (b->places[i].numa == lane->numa && strcmp(b->places[i].host, host) == 0)
            return i;
    b->places[b->count] = (struct budget_place){host, lane->numa};
    b->nodes[b->count] = (struct packer_node){lane->memory_bytes ? lane->memory_bytes : UINT64_MAX,
                                              network_left(lane)};
    return b->count++;
}

void budgets_of_lane(struct budgets *b, const struct lane *lane, struct packer_lane *ret_lane)
{
    uint64_t most = lane->aggregator->service->options->limits.most[LIMIT_LANE_MEMORY];
    struct packer_node *node = &b->nodes[ret_lane->node = (uint32_t)node_of(b, lane)];
    /* The limit of a lane applies to the memory that is computed from pieces, as in quota.c. The
     * memory that the lane reports would include temporary buffers. */
    uint64_t counted = lane->pieces * lane->piece_bytes + lane->ranks * lane->rank_bytes;
    ret_lane->memory_bytes = left_of(most, counted);
    if (node->memory_bytes != UINT64_MAX)
        node->memory_bytes = left_of(node->memory_bytes, held_bytes(lane));
}

/* Returns the largest cost of a piece on any lane. Lanes of the same version of gradpool have equal
 * costs. */
uint64_t budgets_piece_bytes(const struct job *job)
{
    uint64_t most = 0;
    list_for_each_entry (const struct aggregator, a, &job->service->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count; i++) {
            uint64_t cost = a->lanes[i].piece_bytes + job->workers * a->lanes[i].rank_bytes;
            most = cost > most ? cost : most;
        }
    }
    return most;
}

uint64_t budgets_tensor_bytes(const struct tensor *tensor, uint64_t piece_bytes)
{
    uint64_t bytes = tensor_bytes(tensor, tensor->elements);
    uint64_t most = tensor->job->index->piece_bytes;
    uint64_t pieces = bytes / most + (bytes % most > 0);
    uint64_t cost = (pieces ? pieces : 1) * piece_bytes;
    return cost ? cost : 1; /* with the value 0 the packer would use the tensor's own bytes */
}

/* --- refusals --- */

enum budget { BUDGET_LANES = 1, BUDGET_NODES = 2, BUDGET_NETWORK = 4 };

static bool would_fit(const struct packer_request *request, unsigned without)
{
    struct packer_plan plan;
    struct packer_request freed = *request;
    _cleanup_free_ struct packer_lane *lanes = calloc(request->lanes_count, sizeof *lanes);
    _cleanup_free_ struct packer_node *nodes = calloc(request->nodes_count + 1, sizeof *nodes);
    if (!lanes || !nodes)
        return false;
    for (size_t i = 0; i < request->lanes_count; i++) {
        lanes[i] = request->lanes[i];
        if (without & BUDGET_LANES)
            lanes[i].memory_bytes = UINT64_MAX;
    }
    for (size_t i = 0; i < request->nodes_count; i++) {
        nodes[i] = request->nodes[i];
        if (without & BUDGET_NODES)
            nodes[i].memory_bytes = UINT64_MAX;
        if (without & BUDGET_NETWORK)
            nodes[i].nic_bytes_per_s = UINT64_MAX;
    }
    freed.lanes = lanes;
    freed.nodes = nodes;
    if (packer_place(&freed, &plan, NULL, 0) < 0)
        return false;
    packer_plan_fini(&plan);
    return true;
}

/* Returns the memory of the largest node, as its lanes report it. This value is within the limit of
 * the lanes' cgroup. */
static uint64_t node_memory(const struct service *s)
{
    uint64_t most = 0;
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link) {
        for (size_t i = 0; i < a->lanes_count; i++)
            most = a->lanes[i].memory_bytes > most ? a->lanes[i].memory_bytes : most;
    }
    return most;
}

void budgets_name(const struct service *s, const struct packer_request *request, struct err *err)
{
    static const struct {
        unsigned without;
        const char *text;
    } budgets[] = {{BUDGET_LANES, "memory of lanes, %s each (--lane-memory-max)"},
                   {BUDGET_NODES, "memory of the lanes' NUMA nodes, %s at most, also by their "
                                  "cgroup (memory.max, memory.limit_in_bytes)"},
                   {BUDGET_NETWORK, "network of the lanes (--network-gbit)"},
                   {BUDGET_LANES | BUDGET_NODES | BUDGET_NETWORK,
                    "memory and network of the lanes (--lane-memory-max, --network-gbit)"}};
    char most[32], text[256];
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        if (!would_fit(request, budgets[i].without))
            continue;
        uint64_t bytes = budgets[i].without == BUDGET_NODES
                             ? node_memory(s)
                             : s->options->limits.most[LIMIT_LANE_MEMORY];
        text_bytes(bytes, most, sizeof most);
        snprintf(text, sizeof text, budgets[i].text, most);
        text_append(err->text, sizeof err->text, "; the service lacks %s", text);
        return;
    }
}
