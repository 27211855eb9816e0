/* Text in columns as wide as their widest cell. Numbers are right-aligned, words left-aligned. */
#ifndef GRADPOOL_OPS_ANSWER_TABLE_H
#define GRADPOOL_OPS_ANSWER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 16

struct table {
    char **cells; /* cells row by row, beginning with the titles */
    size_t columns, count;
    int error; /* -ENOMEM: a cell could not be stored */
};

/* Begins a table. `titles` ends with NULL and has TABLE_COLUMNS_MAX entries at most. A title that
 * begins with '>' is for a column of numbers. */
void table_init(struct table *table, const char *const *titles);
/* Adds a cell. Control bytes for terminals become '?' (text_disarm()), because tenants choose the
 * names. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Like table_add(), but adds "-" if `is_known` is false. */
void table_add_known(struct table *table, bool is_known, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a cell such as "6 KiB". */
void table_add_bytes(struct table *table, uint64_t bytes);
/* Prints all complete rows, and frees the cells. -ENOMEM, -EIO. */
int table_print(struct table *table, FILE *out);

#endif
