/* What lanes have to spare of what they may hold. Tells the packer; decides nothing, and quota.c,
 * which knows every piece of a plan, has the last word (K35). */
#include "svc/coordinator/budgets.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"
#include "svc/coordinator/measuring.h"
#include "svc/coordinator/service.h"

#include <errno.h>
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

/* What its pieces cost it by count, or what it said it holds, when that is more. */
static uint64_t held_bytes(const struct lane *lane)
{
    const WIRE(LaneUse) *use = stats_of_lane(lane);
    uint64_t counted = lane->pieces * lane->piece_bytes + lane->ranks * lane->rank_bytes;
    return use && use->arena_bytes > counted ? use->arena_bytes : counted;
}

static uint64_t left_of(uint64_t all, uint64_t taken) { return all > taken ? all - taken : 0; }

static size_t node_of(struct budgets *b, const struct lane *lane)
{
    const char *host = lane->aggregator->node;
    if (lane->memory_bytes == 0)
        return 0;
    for (size_t i = 1; i < b->count; i++)
        if (b->places[i].numa == lane->numa && strcmp(b->places[i].host, host) == 0)
            return i;
    b->places[b->count] = (struct budget_place){host, lane->numa};
    b->nodes[b->count] = (struct packer_node){lane->memory_bytes, UINT64_MAX};
    return b->count++;
}

void budgets_of_lane(struct budgets *b, const struct lane *lane, struct packer_lane *ret_lane)
{
    uint64_t most = lane->aggregator->service->options.limits.most[LIMIT_LANE_MEMORY];
    struct packer_node *node = &b->nodes[ret_lane->node = (uint32_t)node_of(b, lane)];
    /* By count: more is let in than what passes by may take, but less than what stays. */
    uint64_t counted = lane->pieces * lane->piece_bytes + lane->ranks * lane->rank_bytes;
    ret_lane->memory_bytes = left_of(most, counted);
    if (node->memory_bytes != UINT64_MAX)
        node->memory_bytes = left_of(node->memory_bytes, held_bytes(lane));
}

/* Lanes of one version cost the same; the dearest, where they are of several. */
uint64_t budgets_piece_bytes(const struct job *job)
{
    uint64_t most = 0;
    list_for_each (node, &job->service->aggregators) {
        const struct aggregator *a = list_entry(node, struct aggregator, link);
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
    uint64_t pieces = bytes / PACKER_PIECE_BYTES_MAX + (bytes % PACKER_PIECE_BYTES_MAX > 0);
    uint64_t cost = (pieces ? pieces : 1) * piece_bytes;
    return cost ? cost : 1; /* 0 would mean as much as its own bytes */
}

/* --- refusals --- */

static bool would_fit(const struct packer_request *request, bool lanes, bool nodes)
{
    struct packer_plan plan;
    struct packer_request freed = *request;
    _cleanup_free_ struct packer_lane *copy = calloc(request->lanes_count, sizeof *copy);
    if (!copy)
        return false;
    memcpy(copy, request->lanes, request->lanes_count * sizeof *copy);
    for (size_t i = 0; i < request->lanes_count && lanes; i++)
        copy[i].memory_bytes = UINT64_MAX;
    freed.lanes = copy;
    if (nodes) {
        freed.nodes = NULL;
        freed.nodes_count = 0;
    }
    if (packer_place(&freed, &plan, NULL, 0) < 0)
        return false;
    packer_plan_fini(&plan);
    return true;
}

void budgets_name(const struct service *s, const struct packer_request *request, struct err *err)
{
    char most[32];
    text_bytes(s->options.limits.most[LIMIT_LANE_MEMORY], most, sizeof most);
    if (would_fit(request, true, false))
        text_append(err->text, sizeof err->text,
                    "; it is the memory of lanes that is short, %s each by --lane-memory-max",
                    most);
    else if (would_fit(request, false, true))
        text_append(err->text, sizeof err->text,
                    "; it is the memory of the lanes' NUMA nodes that is short");
    else if (would_fit(request, true, true))
        text_append(err->text, sizeof err->text,
                    "; it is memory that is short, of lanes (%s each by --lane-memory-max) and of "
                    "their NUMA nodes",
                    most);
}
