/* Counts of a job with backup workers: reads them from a message, and computes mean and shares. */
#ifndef GRADPOOL_OPS_SNAPSHOT_COUNTS_H
#define GRADPOOL_OPS_SNAPSHOT_COUNTS_H

#include "svc/channel/channel.h"
#include "svc/view/view.h"

#include <math.h>

/* Copies the counts of the ranks that were in the job when a round closed. `*ret_view` is NULL if
 * there are no counts, or if the lists in the message have different lengths. The caller frees the
 * copy with free(). Returns 0 or -ENOMEM. */
int counts_view(const Gradpool__Wire__RoundCounts *counts, struct view_counts **ret_view);

extern const char *const counts_reason_names[VIEW_REASONS];

/* Returns the mean number of gradients in a round. */
static inline double counts_k_mean(const struct view_counts *counts)
{
    return (double)counts->gradients / (double)counts->rounds;
}
/* Return the share of dropped gradients, from 0 to 1: the first function for the whole job, the
 * second one for one rank. */
double counts_dropped_share(const struct view_counts *counts);
static inline double counts_rank_dropped_share(const struct view_counts_rank *rank)
{
    return (double)rank->dropped / (double)(rank->counted + rank->dropped);
}

#endif
