/* A table whose columns are as wide as their widest cell. Numbers are right-aligned, words
 * left-aligned. */
#ifndef GRADPOOL_OPS_ANSWER_TABLE_H
#define GRADPOOL_OPS_ANSWER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 20

struct table {
    char **cells; /* array of cells, row by row, beginning with the titles */
    size_t columns, count;
    int error; /* -ENOMEM: a cell could not be stored */
};

/* Begins a table. `titles` has at most TABLE_COLUMNS_MAX entries and ends with NULL. The title of a
 * column of numbers begins with '>'. */
void table_init(struct table *table, const char *const *titles);
/* Adds a cell. Control bytes for terminals are replaced by '?' (text_disarm()), because tenants
 * choose names. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Like table_add(), but adds "-" if `is_known` is false. */
void table_add_known(struct table *table, bool is_known, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a cell such as "6 KiB". */
void table_add_bytes(struct table *table, uint64_t bytes);
/* Prints all complete rows and frees the cells. Returns 0, -ENOMEM or -EIO. */
int table_print(struct table *table, FILE *out);

#endif
