/* Free memory and network of lanes and NUMA nodes, for the packer (K35). */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_BUDGET_H
#define GRADPOOL_COORDINATOR_PLACEMENT_BUDGET_H

#include "packer/packer.h"
#include "svc/base/err.h"
#include "svc/coordinator/job/job.h"

/* NUMA nodes of the offered lanes; the first one is for lanes without figures. */
struct budgets {
    struct packer_node *nodes;
    struct budget_place {
        const char *host;
        int32_t numa;
    } * places; /* places[i] is host and NUMA node of nodes[i] */
    size_t count;
};

/* Makes room for `nodes_max` nodes besides the first. -ENOMEM. */
int budgets_init(struct budgets *budgets, size_t nodes_max);
void budgets_free(struct budgets *budgets);
/* Sets the free memory of the lane, and its node. */
void budgets_of_lane(struct budgets *budgets, const struct lane *lane,
                     struct packer_lane *ret_lane);
/* Memory that a piece of the job costs its lane; and that a tensor costs in the fewest pieces. */
uint64_t budgets_piece_bytes(const struct job *job);
uint64_t budgets_tensor_bytes(const struct tensor *tensor, uint64_t piece_bytes);
/* Most bytes a round on the network of a lane that has `bytes` of the job. */
uint64_t budgets_wire_bytes(const struct job *job, uint64_t bytes);
/* Adds to `err` which budget caused the refusal, if the request would fit without one. */
void budgets_name(const struct service *s, const struct packer_request *request, struct err *err);

#endif
