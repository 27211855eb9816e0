/* Copies counts from a message. A copy is one block of memory: the counts, followed by the
 * ranks. */
#include "svc/ops/snapshot/counts.h"

#include <errno.h>
#include <stdlib.h>

const char *const counts_reason_names[VIEW_REASONS] = {"all", "gain", "moment", "absence",
                                                       "replay"};

static bool counts_are_whole(const Gradpool__Wire__RoundCounts *counts)
{
    return counts && counts->rounds > 0 && counts->n_reasons == VIEW_REASONS &&
           counts->n_dropped == counts->n_counted && counts->n_scale_ns == counts->n_counted &&
           counts->n_counted <= UINT32_MAX;
}

int counts_view(const Gradpool__Wire__RoundCounts *counts, struct view_counts **ret_view)
{
    *ret_view = NULL;
    if (!counts_are_whole(counts))
        return 0;
    struct view_counts *view =
        calloc(1, sizeof *view + counts->n_counted * sizeof(struct view_counts_rank));
    if (!view)
        return -ENOMEM;
    view->rounds = counts->rounds;
    view->gradients = counts->gradients;
    for (size_t i = 0; i < VIEW_REASONS; i++)
        view->reasons[i] = counts->reasons[i];
    for (size_t i = 0; i < counts->n_counted; i++) {
        if (counts->counted[i] + counts->dropped[i] == 0)
            continue;
        view->ranks[view->ranks_count++] =
            (struct view_counts_rank){.rank = (uint32_t)i,
                                      .counted = counts->counted[i],
                                      .dropped = counts->dropped[i],
                                      .scale_ns = counts->scale_ns[i]};
    }
    *ret_view = view;
    return 0;
}

double counts_dropped_share(const struct view_counts *counts)
{
    uint64_t counted = 0, dropped = 0;
    for (size_t i = 0; i < counts->ranks_count; i++) {
        counted += counts->ranks[i].counted;
        dropped += counts->ranks[i].dropped;
    }
    return counted + dropped > 0 ? (double)dropped / (double)(counted + dropped) : 0;
}
