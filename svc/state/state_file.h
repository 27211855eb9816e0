/* File of a job's snapshot: parameters, moments and step counts of its tensors with update rules.
 * Little endian. The file has a header, an index sorted by name, and the arrays of each tensor at
 * multiples of 64 bytes. Tables of keyed rows follow, each in the format of table_file.h. README:
 * D1, D2, D5. */
#ifndef GRADPOOL_STATE_STATE_FILE_H
#define GRADPOOL_STATE_STATE_FILE_H

#include "svc/base/err.h"
#include "svc/state/state_sum.h"
#include "svc/state/table_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATE_FILE_VERSION 1
#define STATE_FILE_VERSION_TABLES 2 /* the file has tables of keyed rows behind the tensors */
#define STATE_NAME_BYTES_MAX 255
#define STATE_ELEMENTS_MAX (UINT64_C(1) << 48) /* maximum number of elements of a tensor */

struct state_tensor {
    const char *name;
    uint8_t dtype, rule; /* values of enum reduce_dtype and enum update_rule */
    uint64_t elements;
    uint64_t steps;  /* number of updates since the parameters were set */
    uint64_t round;  /* newest round in the state; for information only */
    uint64_t offset; /* offset of the arrays in the file */
    uint64_t sum;    /* checksum of the arrays */
};

/* Returns the bytes of all arrays of the tensor: parameters, followed by moments. */
uint64_t state_tensor_bytes(const struct state_tensor *t);

struct state_file {
    int fd;
    char *index;                  /* header and index; the names point into this memory */
    struct state_tensor *tensors; /* sorted by name */
    size_t count;
    /* position of the first table, and the end of the file; equal: the file has no table */
    uint64_t tables_offset, file_bytes;
};

/* Parses header and index. `data`: the first `bytes` of a file of `file_bytes`. After success the
 * names in `ret_file` point into `data`, and the caller frees the tensors with free(). Returns 0 or
 * an error with a text. -EBADMSG: the file is not a snapshot, or is damaged. -EPROTO: the file has
 * another version. -ENOMEM. */
int state_index_read(const char *data, size_t bytes, uint64_t file_bytes,
                     struct state_file *ret_file, struct err *err);
/* Opens the file and reads its index. The caller closes it with state_file_close(). Returns 0 or an
 * error with a text: of open(2), of state_index_read(), or -EINVAL if the path is no regular
 * file. */
int state_file_open(const char *path, struct state_file *ret_file, struct err *err);
void state_file_close(struct state_file *f);
/* Finds a tensor. Returns NULL if the file does not have it. */
const struct state_tensor *state_file_find(const struct state_file *f, const char *name);
/* Reads the arrays of a tensor into memory of state_tensor_bytes(). Returns 0 or a negative errno;
 * -EBADMSG: the checksum differs. */
int state_file_read(const struct state_file *f, const struct state_tensor *t, void *ret_data,
                    struct err *err);

/* Reads the head of the next table, in the order of the file. `table`: the table before, or a
 * zeroed struct. Returns 1; 0: no table is left; or an error of table_file_take_in(). The table
 * reads from the file, and is valid as long as the file. */
int state_file_next_table(const struct state_file *f, struct table_file *table, struct err *err);

#endif
