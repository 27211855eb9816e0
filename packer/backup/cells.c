/* A table of arrival times and its monotone fit: pool-adjacent-violators alternately on rows and on
 * columns, with Dykstra's corrections. Must never allocate. README.md: BK9. */
#include "packer/backup/cells.h"

#include <string.h>

#define TABLES 5

size_t cells_bytes(uint32_t workers) { return (size_t)workers * workers * TABLES * sizeof(float); }

void cells_init(struct cells *cells, uint32_t workers, void *memory)
{
    size_t count = (size_t)workers * workers;
    float *tables = memory;
    *cells = (struct cells){.workers = workers,
                            .mean = tables,
                            .weight = tables + count,
                            .fit = tables + 2 * count,
                            .row_part = tables + 3 * count,
                            .column_part = tables + 4 * count};
    cells_clear(cells);
}

void cells_clear(struct cells *cells) { memset(cells->mean, 0, cells_bytes(cells->workers)); }

static size_t cell_of(const struct cells *cells, uint32_t before, uint32_t i)
{
    return (size_t)(before - 1) * cells->workers + (i - 1);
}

void cells_add(struct cells *cells, uint32_t before, uint32_t i, double time)
{
    size_t at = cell_of(cells, before, i);
    cells->weight[at] += 1;
    cells->mean[at] += ((float)time - cells->mean[at]) / cells->weight[at];
}

void cells_forget(struct cells *cells, double keep)
{
    size_t count = (size_t)cells->workers * cells->workers;
    for (size_t i = 0; i < count; i++)
        cells->weight[i] *= (float)keep;
}

static float weight_of(const struct cells *cells, size_t at)
{
    float weight = cells->weight[at];
    return weight > CELLS_EMPTY_WEIGHT ? weight : CELLS_EMPTY_WEIGHT;
}

/* Blocks of adjacent cells of one row or column. The means of the blocks ascend. */
struct cells_pool {
    double mean[CELLS_WORKERS_MAX], weight[CELLS_WORKERS_MAX];
    uint32_t length[CELLS_WORKERS_MAX], count;
};

static void pool_add(struct cells_pool *pool, double mean, double weight)
{
    uint32_t length = 1;
    while (pool->count > 0 && pool->mean[pool->count - 1] > mean) {
        double former = pool->weight[--pool->count];
        mean = (mean * weight + pool->mean[pool->count] * former) / (weight + former);
        weight += former;
        length += pool->length[pool->count];
    }
    pool->mean[pool->count] = mean;
    pool->weight[pool->count] = weight;
    pool->length[pool->count++] = length;
}

/* Makes the values of one line (a row or a column) of `fit` ascend. The line starts at cell
 * `first`, and its cells are `step` apart. `part` has the correction of the previous projection of
 * the line. */
static void cells_project(struct cells *cells, float *part, size_t first, ptrdiff_t step)
{
    struct cells_pool pool;
    pool.count = 0;
    size_t at = first;
    for (uint32_t i = 0; i < cells->workers; i++, at += (size_t)step) {
        part[at] += cells->fit[at];
        pool_add(&pool, part[at], weight_of(cells, at));
    }
    at = first;
    for (uint32_t block = 0; block < pool.count; block++)
        for (uint32_t i = 0; i < pool.length[block]; i++, at += (size_t)step) {
            cells->fit[at] = (float)pool.mean[block];
            part[at] -= cells->fit[at];
        }
}

void cells_fit(struct cells *cells)
{
    uint32_t n = cells->workers;
    size_t count = (size_t)n * n;
    memcpy(cells->fit, cells->mean, count * sizeof(float));
    memset(cells->row_part, 0, 2 * count * sizeof(float));
    for (int sweep = 0; sweep < CELLS_SWEEPS; sweep++) {
        for (uint32_t row = 0; row < n; row++)
            cells_project(cells, cells->row_part, (size_t)row * n, 1);
        for (uint32_t column = 0; column < n; column++)
            cells_project(cells, cells->column_part, (size_t)(n - 1) * n + column, -(ptrdiff_t)n);
    }
}

double cells_time(const struct cells *cells, uint32_t before, uint32_t i)
{
    return cells->fit[cell_of(cells, before, i)];
}
