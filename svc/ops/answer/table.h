/* Text in columns as wide as their widest cell; numbers are aligned right, words left. */
#ifndef GRADPOOL_OPS_ANSWER_TABLE_H
#define GRADPOOL_OPS_ANSWER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 16

struct table {
    char **cells; /* row by row, the titles first */
    size_t columns, count;
    int error; /* -ENOMEM once a cell could not be stored */
};

/* `titles` ends with NULL; at most TABLE_COLUMNS_MAX. A title that begins with '>' is for
 * numbers. */
void table_init(struct table *table, const char *const *titles);
/* Adds a cell. Control bytes of a terminal become '?' (text_disarm()): names are chosen by
 * tenants. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, or "-" if `is_known` is false. */
void table_add_known(struct table *table, bool is_known, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a cell such as "6 KiB". */
void table_add_bytes(struct table *table, uint64_t bytes);
/* Prints whole rows and frees the cells. -ENOMEM, -EIO. */
int table_print(struct table *table, FILE *out);

#endif
