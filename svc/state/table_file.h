/* File of a table of keyed rows: keys, values and moments. The file has no shards, lanes or salt,
 * so the rows fit into any table with the same rows. Little endian. README: D1, D4. */
#ifndef GRADPOOL_STATE_TABLE_FILE_H
#define GRADPOOL_STATE_TABLE_FILE_H

#include "svc/wire/table/table_terms.h"

#include <stddef.h>

#define TABLE_FILE_VERSION 1
/* maximum bytes of rows that are read or written at once */
#define TABLE_FILE_PART_BYTES_MAX (1u << 20)
#define TABLE_FILE_PART_ROWS_MAX 8192u /* maximum rows that are read or written at once */
#define TABLE_FILE_STEPS_MAX (UINT64_C(1) << 48)

/* Describes the rows of a file. The file has only these terms: dim, dtype, rule and initial
 * values. */
struct table_file_head {
    struct table_terms terms;
    char name[TABLE_TERMS_NAME_BYTES_MAX + 1];
    uint64_t rows;
    uint64_t steps; /* number of updates of the table, for rules that count them */
    uint64_t clock; /* clock of the export; for information only */
};

/* Returns the bytes of a row: key, values, moments. The terms are valid. */
size_t table_file_row_bytes(const struct table_terms *terms);
/* Checks whether the rows of the file fit into a table with these terms. Returns 0, or -EINVAL with
 * a text that names the different values. Initial values must be equal, too, because rows that are
 * missing in the file get them. */
int table_file_match(const struct table_file_head *head, const struct table_terms *terms,
                     const char *table, struct err *err);

struct table_file {
    int fd;
    struct table_file_head head;
    /* begin and end of the table in its file */
    uint64_t base, end;
    /* offset: position of the next part; rows: number of rows before this part */
    uint64_t offset, rows;
};
/* Open a file and read its head. `fd` is owned by the result after success. The caller closes the
 * file with table_file_close(). Return 0 or an error with a text: the errors of open(2); -EBADMSG:
 * the file is not a table, or is damaged; -EPROTO: the file has another version; -EINVAL: the path
 * is no regular file. */
int table_file_open(const char *path, struct table_file *ret_file, struct err *err);
int table_file_take(int fd, struct table_file *ret_file, struct err *err);
/* Reads the head of a table at position `base` of a snapshot's file. The table ends at `file_bytes`
 * at the latest. `fd` stays owned by the caller, so the table needs no close. Errors: those of
 * table_file_open(). */
int table_file_take_in(int fd, uint64_t base, uint64_t file_bytes, struct table_file *ret_file,
                       struct err *err);
/* Reads the next part into memory of TABLE_FILE_PART_BYTES_MAX. Returns its bytes; 0: all rows were
 * read; -EBADMSG: the file is too short or damaged; errors of read(2). */
int64_t table_file_next(struct table_file *f, void *ret_rows, struct err *err);
/* Begins again with the first part. */
void table_file_rewind(struct table_file *f);
void table_file_close(struct table_file *f);

#endif
