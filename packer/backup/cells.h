/* cells: mean time from the beginning of a round to its i-th arrival, by the k of the round before;
 * made monotone in both. The table of BACKUP_DBW, a reconstruction. PURE: the caller lends the
 * memory. README.md: BK9. */
#ifndef GRADPOOL_PACKER_BACKUP_CELLS_H
#define GRADPOOL_PACKER_BACKUP_CELLS_H

#include <stddef.h>
#include <stdint.h>

#define CELLS_WORKERS_MAX UINT32_C(256)
#define CELLS_SWEEPS 30           /* sweeps over rows and columns in one fit */
#define CELLS_EMPTY_WEIGHT 0.001f /* of a cell without a time; its value is 0 */

/* Tables of workers x workers, row by row; a row is a k of the round before. */
struct cells {
    uint32_t workers;
    float *mean, *weight; /* of the times in a cell */
    float *fit;           /* by the last cells_fit() */
    float *row_part, *column_part;
};

/* Bytes of memory for that number of workers. */
size_t cells_bytes(uint32_t workers);
/* `memory` is aligned for float and lent as long as the table is used. */
void cells_init(struct cells *cells, uint32_t workers, void *memory);
void cells_clear(struct cells *cells);
/* The i-th arrival, 1 to workers, of a round behind one of `before` arrivals, came after `time`. */
void cells_add(struct cells *cells, uint32_t before, uint32_t i, double time);
/* Multiplies the weight of all former times. */
void cells_forget(struct cells *cells, double keep);
/* Weighted least squares under time(h, i) <= time(h, i + 1) and time(h, i) >= time(h + 1, i). Cost:
 * 60 passes over the table. */
void cells_fit(struct cells *cells);
/* By the last fit. */
double cells_time(const struct cells *cells, uint32_t before, uint32_t i);

#endif
