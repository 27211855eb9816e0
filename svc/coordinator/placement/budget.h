/* What lanes and their NUMA nodes have to spare, for the packer: K35. */
#ifndef GRADPOOL_COORDINATOR_PLACEMENT_BUDGET_H
#define GRADPOOL_COORDINATOR_PLACEMENT_BUDGET_H

#include "packer/packer.h"
#include "svc/base/err.h"
#include "svc/coordinator/job/job.h"

/* Nodes of the lanes that an offer has; the first is that of lanes of which nothing is known. */
struct budgets {
    struct packer_node *nodes;
    struct budget_place {
        const char *host;
        int32_t numa;
    } * places; /* of each node */
    size_t count;
};

/* Room for so many nodes besides the first. -ENOMEM. */
int budgets_init(struct budgets *budgets, size_t nodes_max);
void budgets_free(struct budgets *budgets);
/* Memory of the lane, and the node that it counts for. */
void budgets_of_lane(struct budgets *budgets, const struct lane *lane,
                     struct packer_lane *ret_lane);
/* What a piece of the job costs its lane, and a tensor in the fewest pieces. */
uint64_t budgets_piece_bytes(const struct job *job);
uint64_t budgets_tensor_bytes(const struct tensor *tensor, uint64_t piece_bytes);
/* What crosses the network of a lane each round, at most, when it has so many bytes of the job. */
uint64_t budgets_wire_bytes(const struct job *job, uint64_t bytes);
/* The request was refused: if it would not have been without budgets, `err` says which. */
void budgets_name(const struct service *s, const struct packer_request *request, struct err *err);

#endif
