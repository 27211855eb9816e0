/* Writes the index and the arrays of a snapshot into a file that is complete or absent. README:
 * D1. */
#include "svc/state/state_write.h"

#include "svc/base/cleanup.h"
#include "svc/reduce/update.h"
#include "svc/state/state_layout.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* ---- begin ---- */

static uint64_t index_bytes(const struct state_writer *w)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->count; i++)
        bytes += state_entry_bytes(strlen(w->tensors[i].name));
    return bytes;
}

static void lay_out(struct state_writer *w)
{
    uint64_t end = sizeof(struct state_header) + index_bytes(w);
    for (size_t i = 0; i < w->count; i++) {
        w->tensors[i].offset = state_round_up(end, STATE_ALIGN);
        end = w->tensors[i].offset + state_tensor_bytes(&w->tensors[i]);
    }
    w->file_bytes = end;
}

static void writer_free(struct state_writer *w)
{
    free(w->tensors);
    *w = (struct state_writer){.file = {.fd = -1}};
}

/* Returns whether state_file.c could read the tensors again. The caller may have received the
 * tensors from another process. */
static bool can_be_written(const struct state_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct state_tensor *t = &tensors[i];
        if (t->dtype != REDUCE_F32 || update_moments(t->rule) < 0 ||
            t->elements > STATE_ELEMENTS_MAX || strlen(t->name) > STATE_NAME_BYTES_MAX ||
            (i > 0 && strcmp(tensors[i - 1].name, t->name) >= 0))
            return false;
    }
    return true;
}

static int begin_file(struct state_writer *w, const char *path, struct err *err)
{
    int error = whole_file_begin("snapshot", path, &w->file, err);
    if (error < 0 || ftruncate(w->file.fd, (off_t)w->file_bytes) == 0)
        return error;
    error = err_set(err, -errno, "snapshot %s cannot be written: %s; choose another path", path,
                    err_text(-errno));
    whole_file_abandon(&w->file);
    return error;
}

int state_write_begin(const char *path, const struct state_tensor *tensors, size_t count,
                      struct state_writer *ret_writer, struct err *err)
{
    struct state_writer w = {.file = {.fd = -1}, .count = count};
    if (!can_be_written(tensors, count))
        return err_set(err, -EINVAL, "snapshot %s: the tensors are unsorted, or one has no arrays",
                       path);
    w.tensors = calloc(count + 1, sizeof *w.tensors);
    if (!w.tensors)
        return err_set(
            err, -ENOMEM,
            "snapshot %s: this process has no memory for %zu tensors; raise its memory limit", path,
            count);
    if (count > 0)
        memcpy(w.tensors, tensors, count * sizeof *tensors);
    lay_out(&w);
    int error = begin_file(&w, path, err);
    if (error < 0) {
        writer_free(&w);
        return error;
    }
    *ret_writer = w;
    return 0;
}

int state_write_put(struct state_writer *w, size_t at, uint64_t steps, uint64_t round,
                    const void *data, struct err *err)
{
    struct state_tensor *t = &w->tensors[at];
    t->steps = steps;
    t->round = round;
    t->sum = state_sum(data, state_tensor_bytes(t));
    return whole_file_write(&w->file, data, state_tensor_bytes(t), t->offset, err);
}

/* ---- tables ---- */

int state_write_begin_table(struct state_writer *w, const struct table_file_head *head,
                            struct table_file_writer *ret_table, struct err *err)
{
    uint64_t base = state_round_up(w->file_bytes, STATE_ALIGN);
    return table_file_begin_in(&w->file, base, head, ret_table, err);
}

int state_write_end_table(struct state_writer *w, struct table_file_writer *table, struct err *err)
{
    int error = table_file_end(table, err);
    if (error < 0)
        return error;
    w->has_tables = true;
    w->file_bytes = table->offset;
    return 0;
}

/* ---- end ---- */

static void fill_index(const struct state_writer *w, char *ret_index)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct state_tensor *t = &w->tensors[i];
        size_t name_bytes = strlen(t->name);
        const struct state_entry e = {.elements = t->elements,
                                      .steps = t->steps,
                                      .round = t->round,
                                      .offset = t->offset,
                                      .sum = t->sum,
                                      .name_bytes = (uint16_t)name_bytes,
                                      .dtype = t->dtype,
                                      .rule = t->rule};
        memcpy(ret_index, &e, sizeof e);
        memcpy(ret_index + sizeof e, t->name, name_bytes);
        ret_index += state_entry_bytes(name_bytes);
    }
}

static int write_index(struct state_writer *w, struct err *err)
{
    struct state_header h = {.magic = STATE_MAGIC,
                             .version =
                                 w->has_tables ? STATE_FILE_VERSION_TABLES : STATE_FILE_VERSION,
                             .tensors = (uint32_t)w->count,
                             .file_bytes = w->file_bytes,
                             .index_bytes = index_bytes(w)};
    _cleanup_free_ char *index = calloc(1, h.index_bytes + 1);
    if (!index)
        return err_set(err, -ENOMEM,
                       "snapshot %s: this process has no memory for its index; raise its memory "
                       "limit",
                       w->file.path);
    fill_index(w, index);
    h.index_sum = state_sum(index, h.index_bytes);
    h.header_sum = state_sum(&h, offsetof(struct state_header, header_sum));
    int error = whole_file_write(&w->file, index, h.index_bytes, sizeof h, err);
    return error < 0 ? error : whole_file_write(&w->file, &h, sizeof h, 0, err);
}

int state_write_finish(struct state_writer *w, struct err *err)
{
    int error = write_index(w, err);
    if (error < 0)
        whole_file_abandon(&w->file);
    else
        error = whole_file_finish(&w->file, err);
    writer_free(w);
    return error;
}

void state_write_abandon(struct state_writer *w)
{
    whole_file_abandon(&w->file);
    writer_free(w);
}
