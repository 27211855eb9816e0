/* cells: table of the mean time from the start of a round to its i-th arrival. A row holds the
 * times after rounds with k gradients, a column the times of the i-th arrivals. The fit is monotone
 * in rows and columns. Used by the rules that choose k before a round. PURE: the caller owns the
 * memory. README.md: BK9. */
#ifndef GRADPOOL_PACKER_BACKUP_CELLS_H
#define GRADPOOL_PACKER_BACKUP_CELLS_H

#include <stddef.h>
#include <stdint.h>

#define CELLS_WORKERS_MAX UINT32_C(256)
#define CELLS_SWEEPS 30           /* number of sweeps over rows and columns in one fit */
#define CELLS_EMPTY_WEIGHT 0.001f /* weight of a cell without times, which counts as 0 */

/* Tables of workers x workers, row by row. Row k - 1 holds the times after rounds with k gradients,
 * column i - 1 the times of the i-th arrivals. */
struct cells {
    uint32_t workers;
    float *mean, *weight; /* mean and weight of the times in each cell */
    float *fit;           /* result of the last cells_fit() */
    float *row_part,
        *column_part; /* corrections of the last projections of rows and of columns (Dykstra) */
};

/* Returns the bytes of memory for a number of workers. */
size_t cells_bytes(uint32_t workers);
/* Makes an empty table. `memory` is aligned for float, and stays valid as long as the table is
 * used. */
void cells_init(struct cells *cells, uint32_t workers, void *memory);
void cells_clear(struct cells *cells);
/* Adds a time: `time` passed from the start of the round to its i-th arrival (1 to workers), and
 * the previous round had `before` arrivals. */
void cells_add(struct cells *cells, uint32_t before, uint32_t i, double time);
/* Multiplies the weights of all times by `keep`, 0 to 1. */
void cells_forget(struct cells *cells, double keep);
/* Computes the weighted least-squares fit with time(h, i) <= time(h, i + 1) and time(h, i) >=
 * time(h + 1, i). h is the number of gradients of the previous round. Cost: 60 passes over the
 * table. */
void cells_fit(struct cells *cells);
/* Returns the fitted time to the i-th arrival after a round with `before` gradients. */
double cells_time(const struct cells *cells, uint32_t before, uint32_t i);

#endif
