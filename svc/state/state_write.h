/* Writes the file of a job's snapshot, tensor by tensor. */
#ifndef GRADPOOL_STATE_STATE_WRITE_H
#define GRADPOOL_STATE_STATE_WRITE_H

#include "svc/state/state_file.h"
#include "svc/state/table_write.h"

struct state_writer {
    struct whole_file file;
    struct state_tensor *tensors;
    size_t count;
    uint64_t file_bytes;
    bool has_tables;
};

/* Begins a file for `path`, or for the target if `path` is a symbolic link. Until it is complete
 * the file has no name, or a temporary one in the same folder. Tensors are sorted by name. The
 * array is copied, but the caller still owns the names. The fields steps, round, offset and sum are
 * ignored. Returns 0 or an error with a text. After an error no other function of the writer may be
 * called. -EINVAL: wrong order, an impossible tensor, an empty path, or a target that is no regular
 * file. Other errors are those of open(2). */
int state_write_begin(const char *path, const struct state_tensor *tensors, size_t count,
                      struct state_writer *ret_writer, struct err *err);
/* Writes the arrays of tensor `at`, with its steps and round. Returns 0 or a negative errno. */
int state_write_put(struct state_writer *w, size_t at, uint64_t steps, uint64_t round,
                    const void *data, struct err *err);
/* Begin and end a table of keyed rows behind all that was written before. Between the two calls the
 * caller writes the rows with table_file_put(). Errors: those of table_file_begin_in(), and of
 * writing. */
int state_write_begin_table(struct state_writer *w, const struct table_file_head *head,
                            struct table_file_writer *ret_table, struct err *err);
int state_write_end_table(struct state_writer *w, struct table_file_writer *table, struct err *err);
/* Ends and frees the writer. Returns 0 if the file is complete and on the disk under its name.
 * After an error before the rename, the former file is unchanged. After an error of the last
 * fsync(), the new file has replaced the former file. */
int state_write_finish(struct state_writer *w, struct err *err);
/* Removes the unfinished file and frees the writer. */
void state_write_abandon(struct state_writer *w);

#endif
