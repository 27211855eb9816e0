/* Owns struct table_counts. Counts the work of pulls and pushes, and makes no decision. */
#include "svc/lane/rows/counts/table_counts.h"

#include "svc/lane/rows/table.h"

/* Each table has its own allowance, which counts the memory of the table and allocates from the
 * allowance of all tables. */
static int table_counts_alloc(void *parent, size_t bytes, void **ret_memory)
{
    return allowance_alloc(parent, bytes, ret_memory);
}

static void table_counts_release(void *parent, void *memory, size_t bytes)
{
    allowance_free(parent, memory, bytes);
}

void table_counts_init(struct table_counts *counts, struct allowance *parent)
{
    counts->memory = (struct allowance){.alloc = table_counts_alloc,
                                        .free = table_counts_release,
                                        .context = parent,
                                        .limit_bytes = UINT64_MAX};
}

static void table_counts_shards(const struct lane_table *table, struct table_counts_row *row)
{
    for (uint32_t i = 0; i < table->terms->shards; i++) {
        row->shards += table->shards[i] != NULL;
        row->rows += table->shards[i] ? table->shards[i]->store->rows.count : 0;
    }
}

/* Stores the smallest and largest clock of the members, and the lowest rank with the smallest
 * clock. */
static void table_counts_clocks(const struct lane_table *table, struct table_counts_row *row)
{
    const struct table_clocks *clocks = table->clocks;
    struct clock_rank behind = {0};
    row->minimum_clock = row->largest_clock = clocks->minimum;
    if (table_clocks_behind(clocks, clocks->minimum + 1, &behind, 1) > 0)
        row->behind_rank = behind.rank;
    for (uint32_t rank = 0; rank < table->job->workers_count; rank++) {
        uint64_t clock = table_clocks_of(clocks, rank);
        if (clock > row->largest_clock)
            row->largest_clock = clock;
    }
}

static void table_counts_fill(const struct lane_table *table, struct table_counts_row *row)
{
    const struct table_counts *counts = table->counts;
    *row = (struct table_counts_row){.job = table->job->id,
                                     .table = table->id,
                                     .bytes = counts->memory.used_bytes,
                                     .births = counts->births,
                                     .pulled_keys = counts->pulled_keys,
                                     .pushed_keys = counts->pushed_keys};
    table_counts_shards(table, row);
    table_counts_clocks(table, row);
}

size_t table_counts_measure(const struct lane *lane, struct table_counts_row *ret_rows,
                            size_t rows_max)
{
    size_t count = 0;
    list_for_each_entry (const struct lane_job, job, &lane->jobs, link) {
        if (!job->tables || job->is_dropped)
            continue;
        list_for_each_entry (const struct lane_table, table, &job->tables->tables, link) {
            if (count < rows_max)
                table_counts_fill(table, &ret_rows[count]);
            count++;
        }
    }
    return count;
}
