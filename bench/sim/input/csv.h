/* A table of plain CSV: one line of names, no quotes. The caller names the columns that it needs;
 * other columns are skipped. Errors have the form "file:line: what was expected, what was
 * there". */
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
    char *text; /* the line, split at its commas */
    size_t text_bytes;
    const char *const *names; /* needed columns, then NULL */
    size_t positions[TABLE_COLUMNS_MAX];
    char *fields[TABLE_COLUMNS_MAX];
    size_t columns; /* number of columns in the file */
    char error[TABLE_ERROR_BYTES];
};

/* Opens the file and finds the columns. Returns 0, or a negative errno with a text in `error`.
 * `names` must stay valid. The caller calls table_close() also after an error. */
int table_open(struct table *table, const char *path, const char *const *names);
/* Reads the next row. Returns 1; 0 at the end; -EINVAL. */
int table_next(struct table *table);
/* Returns the text of a column in the row; `name`: position in `names`. Valid until the next
 * row. */
const char *table_text(const struct table *table, size_t name);
/* Reads a number. -EINVAL: no number in the range. */
int table_number(struct table *table, size_t name, double least, double most, double *ret_value);
/* Sets `error` for the row, and returns -EINVAL. */
int table_complain(struct table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void table_close(struct table *table);

#endif
