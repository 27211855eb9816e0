/* Writes the file of a table, part by part. README: D1, D4. */
#ifndef GRADPOOL_STATE_TABLE_WRITE_H
#define GRADPOOL_STATE_TABLE_WRITE_H

#include "svc/state/table_file.h"
#include "svc/state/whole_file.h"

struct table_file_writer {
    struct whole_file file;  /* file that has only this table */
    struct whole_file *into; /* file of a snapshot, owned by the caller; NULL: `file` is used */
    uint64_t base;           /* position of the table in its file */
    const struct table_file_head *head; /* owned by the caller */
    size_t row_bytes;
    uint64_t offset, rows; /* `offset`: position of the next part in the file */
};
/* Begins a file. `head` must stay valid until the end of the writer; head->rows is ignored. Errors:
 * as for whole_file_begin(), and -EINVAL for terms that are invalid for a table. */
int table_file_begin(const char *path, const struct table_file_head *head,
                     struct table_file_writer *ret_writer, struct err *err);
/* Begins a table at position `base` of a file that has other content, too. Errors: -EINVAL as
 * above. */
int table_file_begin_in(struct whole_file *file, uint64_t base, const struct table_file_head *head,
                        struct table_file_writer *ret_writer, struct err *err);
/* Writes whole rows: at most TABLE_FILE_PART_BYTES_MAX bytes and TABLE_FILE_PART_ROWS_MAX rows.
 * -EBADMSG: `bytes` is not a multiple of the bytes of a row, or too large. */
int table_file_put(struct table_file_writer *w, const void *rows, size_t bytes, struct err *err);
/* Writes the header, after the last rows. `w->offset` is then the end of the table. */
int table_file_end(struct table_file_writer *w, struct err *err);
/* Writes the header, and ends a file that has only this table. Results: whole_file_finish(). */
int table_file_finish(struct table_file_writer *w, struct err *err);
/* Removes the unfinished file. */
void table_file_abandon(struct table_file_writer *w);

#endif
