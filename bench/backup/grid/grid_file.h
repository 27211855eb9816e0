/* Reads a grid from a JSON file. */
#ifndef GRADPOOL_BENCH_BACKUP_GRID_GRID_FILE_H
#define GRADPOOL_BENCH_BACKUP_GRID_GRID_FILE_H

#include "bench/backup/grid/grid.h"

#define GRID_FILE_ERROR_BYTES 256

/* Reads workers, seeds, limits, problems, step times, stragglers, rules and checks. Step times are
 * found by name. With `is_fast_rate`, reads the part "rate_2" of the file. Returns -errno with a
 * text in `error`. */
int grid_file_read(const char *path, bool is_fast_rate, struct grid *ret_grid,
                   char error[GRID_FILE_ERROR_BYTES]);

#endif
