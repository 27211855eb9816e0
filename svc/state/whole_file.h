/* A file that is complete or absent. The requested name never refers to an incomplete file.
 * README: D1. */
#ifndef GRADPOOL_STATE_WHOLE_FILE_H
#define GRADPOOL_STATE_WHOLE_FILE_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct whole_file {
    int fd;           /* descriptor of the file; -1: no file */
    const char *what; /* kind of the file in texts, such as "snapshot" */
    char *path, *temporary;
    bool is_nameless; /* the file has no name until it is complete */
};

/* Begins a file for `path`, or for the target if `path` is a symbolic link. Until it is complete
 * the file has no name, or a temporary one in the same folder. `what` must stay valid. Returns 0 or
 * an error with a text. After an error no other function may be called for this file. -EINVAL: an
 * empty path, or a target that is no regular file. Other errors are those of open(2). */
int whole_file_begin(const char *what, const char *path, struct whole_file *ret_file,
                     struct err *err);
/* Writes bytes at an offset. Returns 0 or a negative errno with a text. */
int whole_file_write(struct whole_file *w, const void *data, uint64_t bytes, uint64_t offset,
                     struct err *err);
/* Ends the file and frees its fields. Returns 0 if the file is complete and on the disk under its
 * name. After an error before the rename, the former file is unchanged. After an error of the last
 * fsync(), the new file has replaced the former file. */
int whole_file_finish(struct whole_file *w, struct err *err);
/* Removes the unfinished file and frees its fields. No effect after whole_file_finish(). */
void whole_file_abandon(struct whole_file *w);

#endif
