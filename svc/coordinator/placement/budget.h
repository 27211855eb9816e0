/* Free memory and bandwidth of lanes and NUMA nodes, for the packer (K35). */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_BUDGET_H
#define GRADPOOL_COORDINATOR_PLACEMENT_BUDGET_H

#include "packer/packer.h"
#include "svc/base/err.h"
#include "svc/coordinator/job/job.h"

struct budget_place {
    const char *host;
    int32_t numa;
};

/* NUMA nodes of the offered lanes. Entry 0 is for lanes whose node is unknown. */
struct budgets {
    struct packer_node *nodes;
    struct budget_place *places; /* places[i]: host and NUMA node of nodes[i] */
    size_t count;
};

/* Makes room for `nodes_max` nodes in addition to entry 0. Returns 0 or -ENOMEM. */
int budgets_init(struct budgets *budgets, size_t nodes_max);
void budgets_free(struct budgets *budgets);
/* Sets the node of the lane, and the lane's free memory. */
void budgets_of_lane(struct budgets *budgets, const struct lane *lane,
                     struct packer_lane *ret_lane);
/* budgets_piece_bytes() returns the memory that a piece of the job costs on its lane.
 * budgets_tensor_bytes() returns the memory that a tensor costs if it has as few pieces as
 * possible. */
uint64_t budgets_piece_bytes(const struct job *job);
uint64_t budgets_tensor_bytes(const struct tensor *tensor, uint64_t piece_bytes);
/* Returns the largest number of bytes that a lane with `bytes` of the job transfers over the
 * network in a round. */
uint64_t budgets_wire_bytes(const struct job *job, uint64_t bytes);
/* Adds to `err` the budget that caused the refusal, if the request would fit without this
 * budget. */
void budgets_name(const struct service *s, const struct packer_request *request, struct err *err);

#endif
