/* Writes the file of a table. The header is written last, because the number of rows is known only
 * at the end. README: D1, D4. */
#include "svc/state/table_write.h"

#include "svc/state/table_layout.h"

#include <errno.h>
#include <string.h>

/* Returns the file of the table. */
static struct whole_file *table_file_of(struct table_file_writer *w)
{
    return w->into ? w->into : &w->file;
}

int table_file_begin_in(struct whole_file *file, uint64_t base, const struct table_file_head *head,
                        struct table_file_writer *ret_writer, struct err *err)
{
    int error =
        table_terms_check_name(head->name, err) ?: table_terms_check(&head->terms, head->name, err);
    if (error < 0)
        return error;
    *ret_writer = (struct table_file_writer){.file = {.fd = -1},
                                             .into = file,
                                             .head = head,
                                             .row_bytes = table_file_row_bytes(&head->terms),
                                             .base = base,
                                             .offset = base + sizeof(struct table_header)};
    return 0;
}

int table_file_begin(const char *path, const struct table_file_head *head,
                     struct table_file_writer *ret_writer, struct err *err)
{
    struct table_file_writer w;
    int error = table_file_begin_in(NULL, 0, head, &w, err);
    if (error < 0)
        return error;
    error = whole_file_begin("table", path, &w.file, err);
    if (error < 0)
        return error;
    *ret_writer = w;
    return 0;
}

int table_file_put(struct table_file_writer *w, const void *rows, size_t bytes, struct err *err)
{
    struct table_part part = {.rows = (uint32_t)(bytes / w->row_bytes), .first = w->rows};
    if (bytes == 0 || bytes % w->row_bytes != 0 || bytes > TABLE_FILE_PART_BYTES_MAX ||
        part.rows > TABLE_FILE_PART_ROWS_MAX)
        return err_set(err, -EBADMSG,
                       "table %s cannot be written: %zu bytes are not whole rows of %zu bytes; "
                       "install one version of gradpool on all hosts",
                       table_file_of(w)->path, bytes, w->row_bytes);
    part.sum = table_part_sum(&part, rows, bytes);
    int error = whole_file_write(table_file_of(w), &part, sizeof part, w->offset, err);
    if (error == 0)
        error = whole_file_write(table_file_of(w), rows, bytes, w->offset + sizeof part, err);
    if (error < 0)
        return error;
    w->offset += sizeof part + bytes;
    w->rows += part.rows;
    return 0;
}

int table_file_end(struct table_file_writer *w, struct err *err)
{
    const struct table_terms *terms = &w->head->terms;
    struct table_header h = {.magic = TABLE_MAGIC,
                             .version = TABLE_FILE_VERSION,
                             .dim = terms->dim,
                             .dtype = terms->dtype,
                             .rule = terms->rule,
                             .initial = terms->initial,
                             .initial_value = terms->initial_value,
                             .seed = terms->seed,
                             .rows = w->rows,
                             .steps = w->head->steps,
                             .clock = w->head->clock,
                             .file_bytes = w->offset - w->base};
    memcpy(h.name, w->head->name, strnlen(w->head->name, sizeof h.name - 1));
    h.header_sum = state_sum(&h, offsetof(struct table_header, header_sum));
    return whole_file_write(table_file_of(w), &h, sizeof h, w->base, err);
}

int table_file_finish(struct table_file_writer *w, struct err *err)
{
    int error = table_file_end(w, err);
    if (error < 0) {
        table_file_abandon(w);
        return error;
    }
    return whole_file_finish(&w->file, err);
}

void table_file_abandon(struct table_file_writer *w) { whole_file_abandon(&w->file); }
