/* Queues settings of tables, and sends them before the end of their clock. Spare entries are used
 * again, so a change in each step needs no memory. */
#include "client/lib/rows/changes.h"

#include "client/lib/link/link.h"
#include "client/lib/session/process.h"

#include <errno.h>
#include <stdlib.h>

/* Number of settings that a lane stores for a table (ROW_SETTINGS_MAX), plus 1 for the settings of
 * one clock. */
#define CHANGES_KEPT 65

static struct table_change *change_take(struct job_tables *tables)
{
    struct list *node = list_first(&tables->spare_changes);
    if (!node)
        return calloc(1, sizeof(struct table_change));
    list_remove(node);
    return list_entry(node, struct table_change, node);
}

/* Keeps as many changes of a table as a lane stores. If a lane is lost before it has logged the
 * newest changes, its successor gets them from this list. */
static void changes_limit(const struct gp_table *t)
{
    struct job_tables *tables = t->job->tables;
    struct table_change *oldest = NULL;
    uint32_t count = 0;
    list_for_each_entry (struct table_change, change, &tables->changes, node) {
        if (change->table != t)
            continue;
        oldest = oldest ? oldest : change;
        count++;
    }
    if (count < CHANGES_KEPT)
        return;
    list_for_each_entry (const struct table_lane, lane, &tables->lanes, node)
        if (!lane->is_lost && lane->change < oldest->number)
            return; /* not sent yet */
    list_remove(&oldest->node);
    list_append(&tables->spare_changes, &oldest->node);
}

int changes_add(struct gp_table *t, const gp_row_settings *s)
{
    struct job_tables *tables = t->job->tables;
    if (tables->use->keeps_changes)
        changes_limit(t);
    struct table_change *change = change_take(tables);
    if (!change)
        return client_error(-ENOMEM,
                            "table '%s': this process has no memory for settings; end a clock, "
                            "then call gp_table_set() again",
                            t->name);
    *change = (struct table_change){.number = ++tables->use->changes_count,
                                    .clock = worker_clock_now(&tables->clock),
                                    .table = t,
                                    .settings = {.rate = s->rate,
                                                 .weight_decay = s->weight_decay,
                                                 .beta1 = s->beta1,
                                                 .beta2 = s->beta2,
                                                 .epsilon = s->epsilon,
                                                 .beta = s->beta,
                                                 .l1 = s->l1,
                                                 .l2 = s->l2,
                                                 .table = t->route.table}};
    list_append(&tables->changes, &change->node);
    link_announce_rows(t->job);
    return 0;
}
