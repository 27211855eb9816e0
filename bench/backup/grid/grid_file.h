/* A grid from a file of JSON. */
#ifndef GRADPOOL_BENCH_BACKUP_GRID_GRID_FILE_H
#define GRADPOOL_BENCH_BACKUP_GRID_GRID_FILE_H

#include "bench/backup/grid/grid.h"

#define GRID_FILE_ERROR_BYTES 256

/* Reads workers, seeds, bounds, problems, step times, stragglers, rules and checks. Step times are
 * known by name. `is_fast_rate`: the part "rate_2" of the file. -errno with a text in `error`. */
int grid_file_read(const char *path, bool is_fast_rate, struct grid *ret_grid,
                   char error[GRID_FILE_ERROR_BYTES]);

#endif
