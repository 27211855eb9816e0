/* Counts of a table on one lane, since the table was placed: its memory, created rows, keys of
 * pulls and pushes. RULES.md: A101. */
#ifndef GRADPOOL_LANE_ROWS_COUNTS_TABLE_COUNTS_H
#define GRADPOOL_LANE_ROWS_COUNTS_TABLE_COUNTS_H

#include "svc/lane/rows/types.h"

/* Other files of the lane increase births, pulled_keys and pushed_keys; these numbers never
 * decrease. */
struct table_counts {
    /* memory of the shards; part of the allowance for the rows of all tables of the job */
    struct allowance memory;
    uint64_t births;      /* rows that pushes have created */
    uint64_t pulled_keys; /* rows that pulls have returned */
    uint64_t pushed_keys; /* gradients of rows that were applied or skipped */
};

/* Initializes zeroed counts. `parent` must stay valid until the memory of all shards is freed. */
void table_counts_init(struct table_counts *counts, struct allowance *parent);

/* One row of table_counts_measure(). Each field has 64 bits, so that a row has no padding. */
struct table_counts_row {
    uint64_t job, table;
    uint64_t rows, bytes; /* number of rows; bytes of rows and index */
    uint64_t births, pulled_keys, pushed_keys;
    /* smallest clock of the members; without members, the last such clock */
    uint64_t minimum_clock;
    /* largest clock of the members; without members, equal to minimum_clock */
    uint64_t largest_clock;
    uint64_t behind_rank; /* lowest rank of the members whose clock is minimum_clock */
    uint64_t shards;      /* shards of the table on the lane */
};

/* Writes a row for each table, job by job in the order of lane_measure(), at most `rows_max`.
 * Returns the number of all tables. */
size_t table_counts_measure(const struct lane *lane, struct table_counts_row *ret_rows,
                            size_t rows_max);

#endif
