/* Text in columns as wide as their widest cell; numbers to the right, words to the left. */
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
    int error; /* -ENOMEM, once a cell could not be kept */
};

/* Titles end with NULL, at most TABLE_COLUMNS_MAX; one that begins with '>' is for numbers. */
void table_init(struct table *table, const char *const *titles);
/* Bytes that a terminal would obey become '?' (text_disarm()): names are a tenant's choice. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, but "-" where `is_known` is false. */
void table_add_known(struct table *table, bool is_known, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "6 KiB" */
void table_add_bytes(struct table *table, uint64_t bytes);
/* Prints whole rows and frees. -ENOMEM, -EIO. */
int table_print(struct table *table, FILE *out);

#endif
