/* Reads the file of a snapshot. Every byte is checked before it is used, and no value causes a
 * failed assert. README: D2. */
#include "svc/state/state_file.h"

#include "svc/base/cleanup.h"
#include "svc/base/text.h"
#include "svc/reduce/update.h"
#include "svc/state/state_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#define INDEX_BYTES_MAX (UINT64_C(1) << 30)

uint64_t state_tensor_bytes(const struct state_tensor *t)
{
    return t->elements * sizeof(float) * (1 + (uint64_t)update_moments(t->rule));
}

/* ---- the index ---- */

static int damaged(struct err *err, const char *what)
{
    return err_set(err, -EBADMSG, "the file is no snapshot, or is damaged: %s", what);
}

static int read_header(const char *data, size_t bytes, uint64_t file_bytes,
                       struct state_header *ret_header, struct err *err)
{
    struct state_header h;
    if (bytes < sizeof h || file_bytes < sizeof h)
        return damaged(err, "the file is too short");
    memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, STATE_MAGIC, sizeof h.magic) != 0)
        return damaged(err, "the first bytes are not those of a snapshot");
    if (h.version < STATE_FILE_VERSION || h.version > STATE_FILE_VERSION_TABLES)
        return err_set(err, -EPROTO,
                       "the snapshot has version %u, but this library reads versions %d to %d",
                       h.version, STATE_FILE_VERSION, STATE_FILE_VERSION_TABLES);
    if (h.header_sum != state_sum(&h, offsetof(struct state_header, header_sum)))
        return damaged(err, "its header has changed");
    if (h.file_bytes != file_bytes)
        return err_set(err, -EBADMSG,
                       "a damaged snapshot: %" PRIu64 " bytes, %" PRIu64 " were written",
                       file_bytes, h.file_bytes);
    if (h.index_bytes > INDEX_BYTES_MAX || h.index_bytes > file_bytes - sizeof h ||
        h.tensors > h.index_bytes / sizeof(struct state_entry))
        return damaged(err, "its index does not fit");
    *ret_header = h;
    return 0;
}

static bool name_is_sound(const char *name, size_t bytes)
{
    return bytes > 0 && bytes <= STATE_NAME_BYTES_MAX && strnlen(name, bytes + 1) == bytes &&
           text_is_utf8(name);
}

static bool extent_is_sound(const struct state_tensor *t, uint64_t after, uint64_t file_bytes)
{
    uint64_t arrays = 1 + (uint64_t)update_moments(t->rule);
    if (t->elements > file_bytes / sizeof(float) / arrays)
        return false;
    uint64_t bytes = state_tensor_bytes(t);
    return t->offset % STATE_ALIGN == 0 && t->offset >= after && t->offset <= file_bytes &&
           bytes <= file_bytes - t->offset;
}

/* Returns the length of the entry, or 0 if it is invalid. */
static size_t read_entry(const char *data, size_t bytes, struct state_tensor *ret_tensor)
{
    struct state_entry e;
    if (bytes < sizeof e)
        return 0;
    memcpy(&e, data, sizeof e);
    size_t taken = state_entry_bytes(e.name_bytes);
    if (taken > bytes || !name_is_sound(data + sizeof e, e.name_bytes) || e.reserved != 0 ||
        e.dtype != REDUCE_F32 || update_moments(e.rule) < 0 || e.steps > INT64_MAX)
        return 0;
    *ret_tensor = (struct state_tensor){.name = data + sizeof e,
                                        .dtype = e.dtype,
                                        .rule = e.rule,
                                        .elements = e.elements,
                                        .steps = e.steps,
                                        .round = e.round,
                                        .offset = e.offset,
                                        .sum = e.sum};
    return taken;
}

/* Reads and checks all entries of the index. `ret_end`: end of the last array. */
static int read_entries(const char *index, const struct state_header *h,
                        struct state_tensor *tensors, uint64_t *ret_end, struct err *err)
{
    uint64_t at = 0, after = sizeof *h + h->index_bytes;
    for (size_t i = 0; i < h->tensors; i++) {
        struct state_tensor *t = &tensors[i];
        size_t taken = read_entry(index + at, h->index_bytes - at, t);
        if (taken == 0)
            return damaged(err, "an entry of its index makes no sense");
        if (i > 0 && strcmp(tensors[i - 1].name, t->name) >= 0)
            return damaged(err, "its index is not in order");
        if (!extent_is_sound(t, after, h->file_bytes))
            return damaged(err, "a tensor lies outside of it, or over another");
        after = t->offset + state_tensor_bytes(t);
        at += taken;
    }
    *ret_end = after;
    return at == h->index_bytes ? 0 : damaged(err, "its index has more than was counted");
}

/* Computes the position of the tables, of which a file of version 2 has at least one. */
static int place_tables(struct state_file *f, const struct state_header *h, uint64_t end,
                        struct err *err)
{
    f->file_bytes = f->tables_offset = h->file_bytes;
    if (h->version == STATE_FILE_VERSION)
        return 0;
    f->tables_offset = state_round_up(end, STATE_ALIGN);
    return f->tables_offset < h->file_bytes ? 0 : damaged(err, "its tables are missing");
}

int state_index_read(const char *data, size_t bytes, uint64_t file_bytes,
                     struct state_file *ret_file, struct err *err)
{
    struct state_header h;
    uint64_t end = 0;
    int error = read_header(data, bytes, file_bytes, &h, err);
    if (error < 0)
        return error;
    if (h.index_bytes > bytes - sizeof h)
        return damaged(err, "the file is too short");
    if (h.index_sum != state_sum(data + sizeof h, h.index_bytes))
        return damaged(err, "its index has changed");
    _cleanup_free_ struct state_tensor *tensors = calloc(h.tensors + 1, sizeof *tensors);
    if (!tensors)
        return err_set(
            err, -ENOMEM,
            "this process has no memory for the list of %u tensors; raise its memory limit",
            h.tensors);
    error = read_entries(data + sizeof h, &h, tensors, &end, err);
    if (error == 0)
        error = place_tables(ret_file, &h, end, err);
    if (error < 0)
        return error;
    ret_file->count = h.tensors;
    ret_file->tensors = take_ptr(tensors);
    return 0;
}

/* ---- the file ---- */

static int read_all(int fd, void *ret_data, uint64_t bytes, uint64_t offset)
{
    for (char *at = ret_data; bytes > 0;) {
        ssize_t got = pread(fd, at, bytes < SSIZE_MAX ? bytes : SSIZE_MAX, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EBADMSG; /* the file was truncated */
        at += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return 0;
}

static int file_error(struct err *err, const char *path, int code)
{
    return err_set(err, code, "%s cannot be read: %s; give the path of a snapshot", path,
                   err_text(code));
}

/* Reads header and index. The header has the length of the index. */
static int load_index(int fd, uint64_t file_bytes, char **ret_index, size_t *ret_bytes,
                      struct err *err)
{
    char start[sizeof(struct state_header)];
    struct state_header h;
    size_t there = file_bytes < sizeof start ? file_bytes : sizeof start;
    int error = read_all(fd, start, there, 0);
    if (error < 0)
        return err_set(err, error, "%s", err_text(error));
    error = read_header(start, there, file_bytes, &h, err);
    if (error < 0)
        return error;
    _cleanup_free_ char *index = malloc(sizeof h + h.index_bytes);
    if (!index)
        return err_set(
            err, -ENOMEM,
            "this process has no memory for the list of %u tensors; raise its memory limit",
            h.tensors);
    error = read_all(fd, index, sizeof h + h.index_bytes, 0);
    if (error < 0)
        return err_set(err, error, "%s", err_text(error));
    *ret_bytes = sizeof h + h.index_bytes;
    *ret_index = take_ptr(index);
    return 0;
}

static int open_plain(const char *path, uint64_t *ret_bytes, int *ret_fd, struct err *err)
{
    struct stat status;
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) < 0)
        return file_error(err, path, -errno);
    if (!S_ISREG(status.st_mode))
        return err_set(err, -EINVAL, "%s: no plain file", path);
    *ret_bytes = (uint64_t)status.st_size;
    *ret_fd = take_fd(&fd);
    return 0;
}

int state_file_open(const char *path, struct state_file *ret_file, struct err *err)
{
    struct state_file f = {.fd = -1};
    struct err why = {0};
    uint64_t file_bytes = 0;
    size_t bytes = 0;
    int error = open_plain(path, &file_bytes, &f.fd, err);
    if (error < 0)
        return error;
    error = load_index(f.fd, file_bytes, &f.index, &bytes, &why)
                ?: state_index_read(f.index, bytes, file_bytes, &f, &why);
    if (error < 0) {
        state_file_close(&f);
        return err_set(err, error, "%s: %s", path, why.text);
    }
    *ret_file = f;
    return 0;
}

void state_file_close(struct state_file *f)
{
    cleanup_fd(&f->fd);
    free(f->index);
    free(f->tensors);
    *f = (struct state_file){.fd = -1};
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct state_tensor *)tensor)->name);
}

const struct state_tensor *state_file_find(const struct state_file *f, const char *name)
{
    return bsearch(name, f->tensors, f->count, sizeof *f->tensors, compare_name);
}

int state_file_read(const struct state_file *f, const struct state_tensor *t, void *ret_data,
                    struct err *err)
{
    int error = read_all(f->fd, ret_data, state_tensor_bytes(t), t->offset);
    if (error < 0)
        return err_set(err, error, "tensor '%s' in the snapshot: %s", t->name, err_text(error));
    if (state_sum(ret_data, state_tensor_bytes(t)) != t->sum)
        return err_set(err, -EBADMSG,
                       "tensor '%s' in the snapshot is damaged: its checksum is wrong", t->name);
    return 0;
}

/* ---- tables ---- */

int state_file_next_table(const struct state_file *f, struct table_file *table, struct err *err)
{
    uint64_t base = table->end ? state_round_up(table->end, STATE_ALIGN) : f->tables_offset;
    if (table->end ? table->end == f->file_bytes : base == f->file_bytes)
        return 0;
    if (base > f->file_bytes)
        return damaged(err, "a table lies outside of it");
    int error = table_file_take_in(f->fd, base, f->file_bytes, table, err);
    return error < 0 ? error : 1;
}
