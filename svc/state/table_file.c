/* Reads the file of a table. Every byte is checked before it is used, and no value causes a failed
 * assert. README: D2, D4. */
#include "svc/state/table_file.h"

#include "svc/base/cleanup.h"
#include "svc/reduce/reduce.h"
#include "svc/reduce/rows/rows.h"
#include "svc/state/table_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

size_t table_file_row_bytes(const struct table_terms *terms)
{
    return sizeof(uint64_t) + terms->dim * reduce_element_bytes(terms->dtype) +
           (size_t)row_moments(terms->rule, terms->dim) * sizeof(float);
}

/* ---- rows of the file, and of a table ---- */

#define ROWS_TEXT_BYTES 128

static void write_rows_text(const struct table_terms *t, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "dim %u, dtype %s, rule %s", t->dim, reduce_dtype_name(t->dtype),
             table_terms_rule_name(t->rule));
}

static bool initial_is_same(const struct table_terms *a, const struct table_terms *b)
{
    bool has_value = a->initial != TABLE_TERMS_ZEROS;
    bool has_seed = has_value && a->initial != TABLE_TERMS_CONSTANT;
    return a->initial == b->initial &&
           (!has_value ||
            memcmp(&a->initial_value, &b->initial_value, sizeof a->initial_value) == 0) &&
           (!has_seed || a->seed == b->seed);
}

int table_file_match(const struct table_file_head *head, const struct table_terms *terms,
                     const char *table, struct err *err)
{
    char own[ROWS_TEXT_BYTES], other[ROWS_TEXT_BYTES];
    write_rows_text(&head->terms, own, sizeof own);
    write_rows_text(terms, other, sizeof other);
    if (strcmp(own, other) != 0)
        return err_set(err, -EINVAL,
                       "the file has rows of table '%s' with %s, but table '%s' has %s; declare "
                       "the table with the rows of the file",
                       head->name, own, table, other);
    if (!initial_is_same(&head->terms, terms))
        return err_set(err, -EINVAL,
                       "the file's table '%s' has initial values of kind %u, value %g, seed "
                       "%" PRIu64
                       ", but table '%s' has initial values of kind %u, value %g, seed %" PRIu64
                       ", so rows that the file lacks would have other values; declare the table "
                       "with the initial values of the file",
                       head->name, head->terms.initial, head->terms.initial_value, head->terms.seed,
                       table, terms->initial, terms->initial_value, terms->seed);
    return 0;
}

/* ---- the header ---- */

static int table_damaged(struct err *err, const char *what)
{
    return err_set(err, -EBADMSG, "the file is no exported table, or is damaged: %s", what);
}

/* Reads exactly `bytes` bytes. -EBADMSG: the file is shorter. */
static int table_file_read(int fd, void *ret_data, size_t bytes, uint64_t offset)
{
    for (char *at = ret_data; bytes > 0;) {
        ssize_t got = pread(fd, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EBADMSG;
        at += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 0;
}

static int check_rows(const struct table_header *h, struct err *err)
{
    const struct table_terms terms = {.dim = h->dim,
                                      .dtype = h->dtype,
                                      .rule = h->rule,
                                      .initial = h->initial,
                                      .initial_value = h->initial_value,
                                      .seed = h->seed};
    struct err why;
    if (h->name[sizeof h->name - 1] != '\0' || table_terms_check_name(h->name, &why) < 0)
        return table_damaged(err, "its name is not that of a table");
    if (table_terms_check(&terms, h->name, &why) < 0)
        return table_damaged(err, "its rows are not those of a table");
    if (h->steps > TABLE_FILE_STEPS_MAX)
        return table_damaged(err, "its number of updates is too large");
    return 0;
}

/* Checks the header of a table. `bytes`: bytes of the file from the header on. `is_whole`: the file
 * has only this table. */
static int check_header(const struct table_header *h, uint64_t bytes, bool is_whole,
                        struct err *err)
{
    if (memcmp(h->magic, TABLE_MAGIC, sizeof h->magic) != 0)
        return table_damaged(err, "the first bytes are not those of a table");
    if (h->version != TABLE_FILE_VERSION)
        return err_set(err, -EPROTO,
                       "the file of a table has version %u, but this program reads version %d; "
                       "install the version that wrote the file",
                       h->version, TABLE_FILE_VERSION);
    if (h->header_sum != state_sum(h, offsetof(struct table_header, header_sum)) || h->reserved)
        return table_damaged(err, "its header has changed");
    if (is_whole ? h->file_bytes != bytes : h->file_bytes > bytes || h->file_bytes < sizeof *h)
        return err_set(err, -EBADMSG,
                       "a damaged file of a table: the file has %" PRIu64
                       " bytes, but its writer wrote %" PRIu64 "; copy the file again",
                       bytes, h->file_bytes);
    return check_rows(h, err);
}

static struct table_file_head head_of(const struct table_header *h)
{
    struct table_file_head head = {.terms = {.dim = h->dim,
                                             .dtype = h->dtype,
                                             .rule = h->rule,
                                             .initial = h->initial,
                                             .initial_value = h->initial_value,
                                             .seed = h->seed},
                                   .rows = h->rows,
                                   .steps = h->steps,
                                   .clock = h->clock};
    memcpy(head.name, h->name, sizeof head.name);
    return head;
}

static int table_file_head(int fd, uint64_t base, uint64_t bytes, bool is_whole,
                           struct table_file *ret_file, struct err *err)
{
    struct table_header h;
    int error = table_file_read(fd, &h, sizeof h, base);
    if (error == -EBADMSG)
        return table_damaged(err, "the file is too short");
    if (error < 0)
        return err_set(err, error, "the file of a table cannot be read: %s", err_text(error));
    error = check_header(&h, bytes, is_whole, err);
    if (error < 0)
        return error;
    *ret_file = (struct table_file){
        .fd = fd, .head = head_of(&h), .base = base, .end = base + h.file_bytes};
    table_file_rewind(ret_file);
    return 0;
}

int table_file_take_in(int fd, uint64_t base, uint64_t file_bytes, struct table_file *ret_file,
                       struct err *err)
{
    return table_file_head(fd, base, file_bytes - base, false, ret_file, err);
}

int table_file_take(int fd, struct table_file *ret_file, struct err *err)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return err_set(err, -errno, "the file of a table cannot be read: %s", err_text(-errno));
    if (!S_ISREG(status.st_mode))
        return err_set(err, -EINVAL, "the path is no regular file; name the file of an export");
    return table_file_head(fd, 0, (uint64_t)status.st_size, true, ret_file, err);
}

int table_file_open(const char *path, struct table_file *ret_file, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, -errno, "file %s cannot be read: %s; name the file of an export", path,
                       err_text(-errno));
    int error = table_file_take(fd, ret_file, err);
    if (error < 0)
        cleanup_fd(&fd);
    return error;
}

/* ---- parts ---- */

void table_file_rewind(struct table_file *f)
{
    f->offset = f->base + sizeof(struct table_header);
    f->rows = 0;
}

static bool part_is_sound(const struct table_file *f, const struct table_part *part)
{
    uint64_t bytes = part->rows * (uint64_t)table_file_row_bytes(&f->head.terms);
    return part->rows > 0 && part->rows <= TABLE_FILE_PART_ROWS_MAX && part->reserved == 0 &&
           part->first == f->rows && part->rows <= f->head.rows - f->rows &&
           bytes <= TABLE_FILE_PART_BYTES_MAX && sizeof *part + bytes <= f->end - f->offset;
}

int64_t table_file_next(struct table_file *f, void *ret_rows, struct err *err)
{
    struct table_part part;
    if (f->rows == f->head.rows && f->offset == f->end)
        return 0;
    int error = table_file_read(f->fd, &part, sizeof part, f->offset);
    if (error == 0 && !part_is_sound(f, &part))
        return table_damaged(err, "a part does not follow the part before");
    size_t bytes = error == 0 ? part.rows * table_file_row_bytes(&f->head.terms) : 0;
    if (error == 0)
        error = table_file_read(f->fd, ret_rows, bytes, f->offset + sizeof part);
    if (error == -EBADMSG)
        return table_damaged(err, "rows are missing at its end");
    if (error < 0)
        return err_set(err, error, "the file of a table cannot be read: %s", err_text(error));
    if (part.sum != table_part_sum(&part, ret_rows, bytes))
        return table_damaged(err, "the checksum of a part differs");
    f->offset += sizeof part + bytes;
    f->rows += part.rows;
    return (int64_t)bytes;
}

void table_file_close(struct table_file *f)
{
    cleanup_fd(&f->fd);
    f->fd = -1;
}
