/* The file of a job's snapshot: parameters, moments and step counts of its tensors with update
 * rules. Little endian: a header, an index in order of names, then each tensor's arrays, at
 * multiples of 64 bytes. README: D1, D2. */
#ifndef GRADPOOL_STATE_STATE_FILE_H
#define GRADPOOL_STATE_STATE_FILE_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATE_FILE_VERSION 1
#define STATE_NAME_BYTES_MAX 255
#define STATE_ELEMENTS_MAX (UINT64_C(1) << 48) /* of a tensor */

struct state_tensor {
    const char *name;
    uint8_t dtype, rule; /* enum reduce_dtype, enum update_rule */
    uint64_t elements;
    uint64_t steps; /* updates since its parameters were set */
    uint64_t round; /* after which it was saved: for people */
    uint64_t offset, sum;
};

/* All its arrays: parameters, then moments. */
uint64_t state_tensor_bytes(const struct state_tensor *t);
uint64_t state_sum(const void *data, size_t bytes);

struct state_file {
    int fd;
    char *index;                  /* names lie in it */
    struct state_tensor *tensors; /* names ascend */
    size_t count;
};

/* Of a file of so many bytes, whose first `bytes` are these: header and index. Says what is wrong
 * in `err`: -EBADMSG no snapshot, or a damaged one; -EPROTO another version; -ENOMEM. On success
 * `ret_file` borrows names from `data`; its tensors are for free(). */
int state_index_read(const char *data, size_t bytes, uint64_t file_bytes,
                     struct state_file *ret_file, struct err *err);
/* -ENOENT, ... and the above. To be closed. */
int state_file_open(const char *path, struct state_file *ret_file, struct err *err);
void state_file_close(struct state_file *f);
/* NULL: not in there. */
const struct state_tensor *state_file_find(const struct state_file *f, const char *name);
/* Its arrays; -EBADMSG: they are not what was written. */
int state_file_read(const struct state_file *f, const struct state_tensor *t, void *ret_data,
                    struct err *err);

#endif
