/* Searches for the best number of workers, one search for each name of a stage. A search exists
 * until its job ends, or until the coordinator restarts. */
#include "svc/coordinator/stage/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* maximum number of searches of a job; a further search replaces the oldest one */
#define PLANS_MAX 256

static struct stage_plan *plan_find(struct stages *s, const char *name)
{
    list_for_each_entry (struct stage_plan, plan, &s->plans, link)
        if (strcmp(plan->name, name) == 0)
            return plan;
    return NULL;
}

/* Returns memory for another search: new memory, or the memory of the oldest search. */
static struct stage_plan *plan_take(struct stages *s)
{
    size_t count = 0;
    list_for_each (node, &s->plans)
        count++;
    if (count < PLANS_MAX)
        return calloc(1, sizeof(struct stage_plan));
    struct stage_plan *plan = list_entry(list_first(&s->plans), struct stage_plan, link);
    list_remove(&plan->link);
    memset(plan, 0, sizeof *plan);
    return plan;
}

struct stage_plan *stages_plan(struct stages *s, const struct stage_terms *terms, uint32_t least,
                               uint32_t most)
{
    struct stage_plan *plan = plan_find(s, terms->name);
    if (!plan) {
        plan = plan_take(s);
        if (!plan)
            return NULL;
        snprintf(plan->name, sizeof plan->name, "%s", terms->name);
        list_append(&s->plans, &plan->link);
    }
    const struct parallel *p = &plan->search;
    if (p->least != least || p->most != most || (uint32_t)p->goal != terms->goal)
        parallel_init(&plan->search, (enum parallel_goal)terms->goal, least, most);
    return plan;
}

void stages_measure(struct stages *s)
{
    struct stage_plan *plan = s->terms->workers == 0 ? plan_find(s, s->terms->name) : NULL;
    if (plan && *s->terms->name)
        parallel_measured(&plan->search, ranks_count(s->members), s->unit_ns);
}
