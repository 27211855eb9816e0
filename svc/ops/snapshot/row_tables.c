/* Copies tables of keyed rows from a message. A copy is one block of memory. The largest clock of a
 * copy is never below the minimum clock, even if the message has wrong values. */
#include "svc/ops/snapshot/row_tables.h"

#include "svc/channel/table_spec.h"

#include <errno.h>
#include <stdlib.h>

static void row_table_count(const Gradpool__Wire__TableCounts *counts, struct view_table *view)
{
    bool is_ahead = counts->largest_clock > counts->minimum_clock;
    view->is_counted = true;
    view->rows = counts->rows;
    view->bytes = counts->bytes;
    view->births = counts->births;
    view->pulled_keys = counts->pulled_keys;
    view->pushed_keys = counts->pushed_keys;
    view->minimum_clock = counts->minimum_clock;
    view->largest_clock = is_ahead ? counts->largest_clock : counts->minimum_clock;
    view->behind_rank = counts->behind_rank;
}

/* Returns the word for a state of copies; NULL: the table wants no copy. */
static const char *row_table_copy(Gradpool__Wire__TableCopyState state)
{
    switch (state) {
    case GRADPOOL__WIRE__TABLE_COPY_STATE__TABLE_COPY_WHOLE: return "whole";
    case GRADPOOL__WIRE__TABLE_COPY_STATE__TABLE_COPY_COPYING: return "copying";
    case GRADPOOL__WIRE__TABLE_COPY_STATE__TABLE_COPY_PROMOTING: return "promoting";
    case GRADPOOL__WIRE__TABLE_COPY_STATE__TABLE_COPY_NONE: return "no copy";
    default: return NULL;
    }
}

static void row_table_fill(const Gradpool__Wire__TableView *message, struct view_table *ret_view)
{
    const struct table_terms terms = table_spec_terms(message->spec);
    *ret_view = (struct view_table){.table = message->spec->name,
                                    .rule = table_terms_rule_name(terms.rule),
                                    .failure = message->failure,
                                    .copy = row_table_copy(message->copy),
                                    .copy_fault = message->copy_fault,
                                    .dim = terms.dim,
                                    .shards = terms.shards};
    table_terms_write_consistency(&terms, ret_view->consistency, sizeof ret_view->consistency);
    if (message->counts)
        row_table_count(message->counts, ret_view);
}

int row_tables_view(const Gradpool__Wire__JobView *job, struct view_tables **ret_tables)
{
    *ret_tables = NULL;
    if (job->n_tables == 0 && job->tables_left_out == 0)
        return 0;
    struct view_tables *tables = calloc(1, sizeof *tables + job->n_tables * sizeof *tables->each);
    if (!tables)
        return -ENOMEM;
    tables->left_out = job->tables_left_out;
    for (size_t i = 0; i < job->n_tables; i++)
        if (job->tables[i]->spec)
            row_table_fill(job->tables[i], &tables->each[tables->count++]);
    *ret_tables = tables;
    return 0;
}
