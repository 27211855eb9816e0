/* Draws step times. Owns the CSV during its read. Must draw the same number of values for each
 * rule, because rules are compared on the same random streams. */
#include "bench/backup/training/durations.h"

#include "bench/sim/chance.h"
#include "bench/sim/input/csv.h"

#include <math.h>
#include <stdio.h>

/* --- the file of jitter --- */

static int row_read(struct table *table, struct jitter *jitter)
{
    struct jitter_row row;
    int r = table_number(table, 0, 0, 100, &row.p50);
    if (r == 0)
        r = table_number(table, 1, row.p50, 100, &row.p90);
    if (r == 0)
        r = table_number(table, 2, row.p90, 100, &row.p99);
    if (r == 0)
        r = table_number(table, 3, row.p99, 100, &row.most);
    if (r == 0 && jitter->count == JITTER_ROWS_MAX)
        r = table_complain(table, "expected at most %d rows", JITTER_ROWS_MAX);
    if (r == 0)
        jitter->rows[jitter->count++] = row;
    return r;
}

int jitter_read(const char *path, struct jitter *ret_jitter)
{
    static const char *const names[] = {"cov_p50", "cov_p90", "cov_p99", "cov_max", NULL};
    struct table table;
    int r = table_open(&table, path, names);
    ret_jitter->count = 0;
    while (r >= 0 && (r = table_next(&table)) > 0)
        r = row_read(&table, ret_jitter);
    if (r == 0 && ret_jitter->count == 0)
        r = table_complain(&table, "expected a row for each job, but the file has none");
    if (r < 0)
        fprintf(stderr, "gradpool-bench: %s\n", table.error);
    table_close(&table);
    return r;
}

/* --- durations --- */

void durations_init(struct durations *d, const struct grid_times *times, uint32_t workers,
                    uint64_t seed, const struct jitter *jitter)
{
    *d = (struct durations){.times = times, .workers = workers, .seed = seed, .state = seed * 7919};
    /* drawn for every kind of times, so that all kinds use the same sequence of random numbers */
    d->row = jitter->rows[chance_next(&d->state) % jitter->count];
}

static double between(double u, double from, double to, double low, double high)
{
    return low + (high - low) * (u - from) / (to - from);
}

/* Returns the coefficient of variation of step times at time `t`. The coefficient is constant
 * within a unit of time, and equal for all ranks. */
static double variation_at(const struct durations *d, double t)
{
    const struct jitter_row *row = &d->row;
    uint64_t state = 77 * (uint64_t)floor(t) + UINT64_C(1000003) * d->seed;
    chance_next(&state);
    double u = chance_unit(&state);
    if (u < 0.5)
        return row->p50 * (0.6 + 0.8 * u);
    if (u < 0.9)
        return between(u, 0.5, 0.9, row->p50, row->p90);
    if (u < 0.99)
        return between(u, 0.9, 0.99, row->p90, row->p99);
    return between(u, 0.99, 1, row->p99, row->most);
}

static bool is_slow(const struct durations *d, uint32_t rank, double t)
{
    switch (d->times->kind) {
    case TIMES_HALF: return rank >= d->workers / 2 && t >= 80;
    case TIMES_DRIFT: return 6 * (1 - cos(2 * M_PI * t / 150)) > (double)rank + 0.5;
    case TIMES_ONE: return rank == d->workers - 1;
    default: return false;
    }
}

double durations_draw(struct durations *d, uint32_t rank, double t)
{
    double tail = chance_exponential(&d->state);
    switch (d->times->kind) {
    case TIMES_CALM: return 1 + 0.02 * tail;
    case TIMES_JITTER: {
        double c = variation_at(d, t);
        return c < 1 ? 1 + c * (tail - 1) : c * tail;
    }
    case TIMES_LONG_TAIL: return 0.3 + tail;
    case TIMES_BURST:
        return (1 + 0.1 * tail) * (chance_unit(&d->state) < 0.05 ? d->times->slower : 1);
    default: return (1 + 0.2 * tail) * (is_slow(d, rank, t) ? d->times->slower : 1);
    }
}
