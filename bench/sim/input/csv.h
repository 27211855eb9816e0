/* A table of plain CSV: one line of names, no quotes. The caller names columns; other columns are
 * skipped. Errors have the form "file:line: what was expected, what was there". */
#ifndef GRADPOOL_BENCH_SIM_INPUT_CSV_H
#define GRADPOOL_BENCH_SIM_INPUT_CSV_H

#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 32
#define TABLE_ERROR_BYTES 512

struct table {
    FILE *file;
    char path[256];
    size_t line;
    char *text; /* the line, cut at its commas */
    size_t text_bytes;
    const char *const *names; /* wanted columns, NULL at the end */
    size_t positions[TABLE_COLUMNS_MAX];
    char *fields[TABLE_COLUMNS_MAX];
    size_t columns; /* columns of the file */
    char error[TABLE_ERROR_BYTES];
};

/* A negative errno, with a text in `error`. The caller keeps `names` alive. Call table_close()
 * after an error, too. */
int table_open(struct table *table, const char *path, const char *const *names);
/* 1: there is a row; 0: the end; -EINVAL. */
int table_next(struct table *table);
/* Text of a column of the row, by position in `names`; valid until the next row. */
const char *table_text(const struct table *table, size_t name);
/* -EINVAL: no number in that range. */
int table_number(struct table *table, size_t name, double least, double most, double *ret_value);
/* Sets `error` for the row, and returns -EINVAL. */
int table_complain(struct table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void table_close(struct table *table);

#endif
