/* Sums the counts that lanes have sent last. The counts are input from another process: counts of
 * an unknown table, or of a rank that the job does not have, are ignored. */
#include "svc/coordinator/table/views.h"

#include "svc/channel/table_spec.h"
#include "svc/coordinator/job/share.h"
#include "svc/coordinator/service.h"
#include "svc/wire/table/record_rows.h"

#include <string.h>

#define VIEW_HEAD_BYTES 8 /* maximum bytes of the tag and length of a view in a message */

/* Memory of a view. */
struct view_source {
    void *(*take)(void *context, size_t bytes);
    void *context;
};

static char *view_text(const struct view_source *source, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = source->take(source->context, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* Finds the counts of a table. The row at index `place` is compared first, because most lanes have
 * shards of all tables. */
static const WIRE(TableCounts) *
    view_counts_in(const WIRE(JobUse) * use, uint32_t table, size_t place)
{
    if (place < use->n_tables && row_table_of(use->tables[place]->table) == table)
        return use->tables[place];
    for (size_t i = 0; i < use->n_tables; i++)
        if (row_table_of(use->tables[i]->table) == table)
            return use->tables[i];
    return NULL;
}

/* Adds the counts of a lane to a sum. The smallest clock of an empty sum is 0. The largest clock of
 * any lane counts, because a lane may reach a clock before other lanes. */
static void view_add_lane(WIRE(TableCounts) * sum, const WIRE(TableCounts) * lane)
{
    sum->rows += lane->rows;
    sum->bytes += lane->bytes;
    sum->births += lane->births;
    sum->pulled_keys += lane->pulled_keys;
    sum->pushed_keys += lane->pushed_keys;
    if (lane->largest_clock > sum->largest_clock)
        sum->largest_clock = lane->largest_clock;
    if (sum->minimum_clock > 0 && sum->minimum_clock <= lane->minimum_clock)
        return;
    sum->minimum_clock = lane->minimum_clock;
    sum->behind_rank = lane->behind_rank;
}

/* Returns the number of shards on lanes. A failed table has shards without a lane. */
static uint64_t view_placed_shards(const struct job_table *table)
{
    uint64_t placed = 0;
    table_each_shard(shard, table) placed += shard->lane != NULL;
    return placed;
}

/* Sums the counts of a table over all lanes. Returns false if a lane with a shard has not sent
 * counts of the table. The lane is then new, or its aggregator has more tables than fit into one
 * message. */
static bool view_sum_lanes(const struct job_table *table, size_t place, WIRE(TableCounts) * ret_sum)
{
    const struct job *job = table->job;
    uint64_t shards = 0;
    *ret_sum = MESSAGE_PART(TableCounts, table_counts, .table = table->id);
    for (size_t i = 0; i < job->shares_count; i++) {
        const WIRE(JobUse) *use = jobs_use_of(job, &job->shares[i]);
        const WIRE(TableCounts) *first = use ? view_counts_in(use, table->id, place) : NULL;
        for (size_t k = 0; first && k < use->n_tables; k++) {
            const WIRE(TableCounts) *counts = use->tables[k];
            bool is_of = counts == first || (row_group_of(counts->table | first->table) > 0 &&
                                             row_table_of(counts->table) == table->id);
            if (!is_of || counts->behind_rank >= job->workers || counts->minimum_clock == 0)
                continue;
            view_add_lane(ret_sum, counts);
            shards += counts->shards;
        }
    }
    return shards > 0 && shards == view_placed_shards(table);
}

/* Returns false if memory is missing. The view is then incomplete, but valid. */
static bool table_view_fill(const struct view_source *source, const struct job_table *table,
                            size_t place, WIRE(TableView) * view)
{
    WIRE(TableCounts) sum;
    *view = MESSAGE_PART(TableView, table_view);
    view->spec = source->take(source->context, sizeof *view->spec);
    if (!view->spec)
        return false;
    *view->spec = table_spec_of(table->terms, NULL);
    view->spec->name = view_text(source, table->name);
    view->failure = view_text(source, table->failure ? table->failure : "");
    const char *fault;
    view->copy = table->job->service->on->job->table_copies(table, &fault);
    view->copy_fault = view_text(source, fault);
    if (!view->spec->name || !view->failure || !view->copy_fault)
        return false;
    if (!view_sum_lanes(table, place, &sum))
        return true;
    view->counts = source->take(source->context, sizeof *view->counts);
    if (view->counts)
        *view->counts = sum;
    return view->counts != NULL;
}

/* Returns the bytes of the view in a message. */
static size_t table_view_bytes(const WIRE(TableView) * view)
{
    return gradpool__wire__table_view__get_packed_size(view) + VIEW_HEAD_BYTES;
}

bool table_views_add(const struct job *job, void *(*take)(void *context, size_t bytes),
                     void *context, size_t *bytes_left, WIRE(JobView) * view)
{
    const struct view_source source = {take, context};
    if (job->index->tables.count == 0)
        return true;
    view->tables = take(context, job->index->tables.count * sizeof(WIRE(TableView) *));
    if (!view->tables)
        return false;
    job_each_table(table, job)
    {
        if (*bytes_left == 0) {
            view->tables_left_out++;
            continue;
        }
        WIRE(TableView) *row = take(context, sizeof *row);
        if (!row)
            return false;
        view->tables[view->n_tables++] = row;
        if (!table_view_fill(&source, table, view->n_tables - 1, row))
            return false;
        size_t bytes = table_view_bytes(row);
        *bytes_left -= bytes < *bytes_left ? bytes : *bytes_left;
    }
    return true;
}
