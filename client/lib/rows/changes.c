/* Queues settings of tables, and sends them before the end of their clock. Spare entries are used
 * again, so a change in each step needs no memory. */
#include "client/lib/rows/changes.h"

#include "client/lib/link/link.h"
#include "client/lib/session/process.h"

#include <errno.h>
#include <stdlib.h>

static struct table_change *change_take(struct job_tables *tables)
{
    struct list *node = list_first(&tables->spare_changes);
    if (!node)
        return calloc(1, sizeof(struct table_change));
    list_remove(node);
    return list_entry(node, struct table_change, node);
}

int changes_add(struct gp_table *t, const gp_row_settings *s)
{
    struct job_tables *tables = t->job->tables;
    struct table_change *change = change_take(tables);
    if (!change)
        return client_error(-ENOMEM,
                            "table '%s': this process has no memory for settings; end a clock, "
                            "then call gp_table_set() again",
                            t->name);
    *change = (struct table_change){.number = ++tables->changes_count,
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
