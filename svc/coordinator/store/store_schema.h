/* Tables of the SQLite store as data, and the SQL statements that are made from them. */
#ifndef GRADPOOL_COORDINATOR_STORE_STORE_SCHEMA_H
#define GRADPOOL_COORDINATOR_STORE_STORE_SCHEMA_H

#include "svc/coordinator/store/store.h"

#include <stddef.h>

#define SQL_BYTES 1024
#define COLUMNS_MAX 20

/* COLUMN_RANKS, COLUMN_TERMS and COLUMN_BACKUP are blobs of fixed length. COLUMN_BLOB is a struct
 * store_blob. */
enum column_type {
    COLUMN_U32,
    COLUMN_I32,
    COLUMN_U64,
    COLUMN_TEXT,
    COLUMN_RANKS,
    COLUMN_TERMS,
    COLUMN_BACKUP,
    COLUMN_BLOB,
};

struct store_column {
    const char *name;
    enum column_type type;
    size_t offset; /* offset in struct store_row */
};

struct table_schema {
    const char *name;
    int keys; /* number of leading columns that form the key */
    const char *constraint;
    struct store_column columns[COLUMNS_MAX]; /* ends with a NULL name */
};

extern const struct table_schema schema_tables[STORE_TABLES];

/* Version of the tables. A database of another version is refused. A change of a table increases
 * the version. */
#define SCHEMA_VERSION 19

int schema_columns(const struct table_schema *table);
/* Each function writes an SQL statement to `sql`, which has SQL_BYTES. */
void schema_create(const struct table_schema *table, char *sql);
void schema_put(const struct table_schema *table, char *sql);
void schema_erase(const struct table_schema *table, char *sql);

#endif
