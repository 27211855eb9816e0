/* The file of a job's parameters, written tensor by tensor. */
#ifndef GRADPOOL_STATE_STATE_WRITE_H
#define GRADPOOL_STATE_STATE_WRITE_H

#include "svc/state/state_file.h"

struct state_writer {
    int fd;
    char *path, *temporary;
    struct state_tensor *tensors;
    size_t count;
    uint64_t file_bytes;
    bool is_nameless; /* the file; its temporary name comes at the end */
};

/* Into a file beside `path`, or what that leads to, which has no name until it is whole, or a
 * temporary one. Tensors: names ascend and stay the caller's; steps, round,
 * offset and sum are not looked at. -EINVAL: out of order, no arrays of that kind, or no path. On
 * failure there is nothing to abandon. */
int state_write_begin(const char *path, const struct state_tensor *tensors, size_t count,
                      struct state_writer *ret_writer, struct err *err);
int state_write_put(struct state_writer *w, size_t at, uint64_t steps, uint64_t round,
                    const void *data, struct err *err);
/* Whole and on disk under its name, or not there at all: what was there before stays until then.
 * Ends the writer, whatever comes of it. */
int state_write_finish(struct state_writer *w, struct err *err);
void state_write_abandon(struct state_writer *w);

#endif
