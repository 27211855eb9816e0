/* Functions with which the rules fill parts of a decision. scale_decision_fini() frees the
 * memory. */
#include "packer/growth/decision.h"

#include <errno.h>
#include <stdlib.h>

#include "packer/growth/plan.h"

int scale_name_lanes(struct scale_decision *d, size_t count)
{
    d->lanes = calloc(count, sizeof *d->lanes);
    return d->lanes ? 0 : -ENOMEM;
}

void scale_take_moves(struct scale_plan *plan, struct scale_decision *d)
{
    d->moves = plan->moves;
    d->moves_count = plan->moves_count;
    plan->moves = NULL;
}
