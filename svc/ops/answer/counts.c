/* Texts for counts of rounds with backup workers. `gradpool jobs` and `gradpool explain` use the
 * same texts. */
#include "svc/ops/answer/counts.h"

#include "svc/base/text.h"

#include <inttypes.h>

void counts_print(const struct view_counts *counts, FILE *out)
{
    fprintf(out, "backup workers: %" PRIu64 " round%s of %.2f gradients, %.2f %% dropped\n",
            counts->rounds, text_plural(counts->rounds), counts_k_mean(counts),
            100 * counts_dropped_share(counts));
    fputs("rounds by reason of their close:", out);
    for (size_t i = 0; i < VIEW_REASONS; i++)
        fprintf(out, "%s %s %" PRIu64, i ? "," : "", counts_reason_names[i], counts->reasons[i]);
    fputc('\n', out);
}

static const struct view_counts_rank *counts_find(const struct view_counts *counts, uint32_t rank)
{
    for (size_t i = 0; counts && i < counts->ranks_count; i++) {
        if (counts->ranks[i].rank == rank)
            return &counts->ranks[i];
    }
    return NULL;
}

void counts_add_rank(struct table *table, const struct view_counts *counts, uint32_t rank)
{
    static const struct view_counts_rank none;
    const struct view_counts_rank *row = counts_find(counts, rank);
    const struct view_counts_rank *shown = row ? row : &none;
    table_add_known(table, row, "%" PRIu64, shown->counted);
    table_add_known(table, row, "%" PRIu64, shown->dropped);
    table_add_known(table, row, "%.1f %%", 100 * counts_rank_dropped_share(shown));
    table_add_known(table, shown->scale_ns, "%.1f ms", (double)shown->scale_ns / 1e6);
}

int counts_print_ranks(const struct view_counts *counts, FILE *out)
{
    static const char *const titles[] = {">RANK",  ">COUNTED",  ">DROPPED",
                                         ">SHARE", ">GRADIENT", NULL};
    struct table table;
    table_init(&table, titles);
    for (size_t i = 0; i < counts->ranks_count; i++) {
        table_add(&table, "%u", counts->ranks[i].rank);
        counts_add_rank(&table, counts, counts->ranks[i].rank);
    }
    return table_print(&table, out);
}

void counts_add_job(struct table *table, const struct view_counts *counts)
{
    table_add_known(table, counts, "%.1f", counts ? counts_k_mean(counts) : 0);
    table_add_known(table, counts, "%.1f %%", counts ? 100 * counts_dropped_share(counts) : 0);
}

static json_t *counts_rank_json(const struct view_counts_rank *rank, int *error)
{
    json_t *o = json_object();
    JSON_PUT(o, rank, error, rank, counted, dropped);
    JSON_PUT_KNOWN(o, rank, error, scale_ns);
    return o;
}

json_t *counts_json(const struct view_counts *counts, int *error)
{
    json_t *o = json_object(), *reasons = json_object(), *ranks = json_array();
    JSON_PUT(o, counts, error, rounds, gradients);
    json_put_real(o, "k_mean", counts_k_mean(counts), error);
    json_put_real(o, "dropped_share", counts_dropped_share(counts), error);
    for (size_t i = 0; i < VIEW_REASONS; i++)
        json_put_number(reasons, counts_reason_names[i], counts->reasons[i], error);
    json_put(o, "reasons", reasons, error);
    for (size_t i = 0; i < counts->ranks_count; i++)
        json_put_last(ranks, counts_rank_json(&counts->ranks[i], error), error);
    json_put(o, "ranks", ranks, error);
    return o;
}
