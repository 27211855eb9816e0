/* Counts of a job with backup workers: reads them from a message, and computes mean and shares. */
#ifndef GRADPOOL_OPS_SNAPSHOT_COUNTS_H
#define GRADPOOL_OPS_SNAPSHOT_COUNTS_H

#include "svc/channel/channel.h"
#include "svc/view/view.h"

#include <math.h>

/* Copies the counts of ranks that were in the job when a round closed. NULL: no counts, as in a
 * message whose lists have different lengths. The caller frees the copy with free(). 0 or
 * -ENOMEM. */
int counts_view(const Gradpool__Wire__RoundCounts *counts, struct view_counts **ret_view);

extern const char *const counts_reason_names[VIEW_REASONS];

/* Returns the mean number of gradients in a round. */
static inline double counts_k_mean(const struct view_counts *counts)
{
    return (double)counts->gradients / (double)counts->rounds;
}
/* Returns the part of all gradients, or of one rank's, that was dropped, from 0 to 1. */
double counts_dropped_share(const struct view_counts *counts);
static inline double counts_rank_dropped_share(const struct view_counts_rank *rank)
{
    return (double)rank->dropped / (double)(rank->counted + rank->dropped);
}

#endif
