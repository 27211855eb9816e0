/* Nodes and weights of the quadrature with which the rule `shared` evaluates its integral (L2).
 * Only packer/ and its tests use this header. */
#ifndef GRADPOOL_PACKER_LOSS_LOSS_NODES_H
#define GRADPOOL_PACKER_LOSS_LOSS_NODES_H

#define LOSS_NODES 80

/* The sum of weight x node^k is k! for k up to 2 x 80 - 1. */
extern const double loss_nodes[LOSS_NODES];
extern const double loss_weights[LOSS_NODES];

#endif
