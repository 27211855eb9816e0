/* Fuzzes the file of a table. Either the file is refused with a reason, or its parts have exactly
 * the rows of its header. The checksums would refuse most inputs, so each input is also tried with
 * correct checksums. */
#include "svc/state/table_file.h"
#include "svc/state/table_layout.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char rows[TABLE_FILE_PART_BYTES_MAX];

static bool is_refusal(int64_t error, const struct err *err)
{
    return (error == -EBADMSG || error == -EPROTO) && err->text[0];
}

static void check_parts(struct table_file *f)
{
    struct err err = {0};
    uint64_t bytes = 0;
    int64_t part;
    while ((part = table_file_next(f, rows, &err)) > 0) {
        assert(part <= TABLE_FILE_PART_BYTES_MAX &&
               part % (int64_t)table_file_row_bytes(&f->head.terms) == 0);
        bytes += (uint64_t)part;
    }
    assert(part == 0 ? bytes == f->head.rows * table_file_row_bytes(&f->head.terms)
                     : is_refusal(part, &err));
}

static void try(const uint8_t *data, size_t bytes)
{
    struct table_file f;
    struct err err = {0};
    int fd = memfd_create("table", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    int error = table_file_take(fd, &f, &err);
    assert(error == 0 || is_refusal(error, &err));
    if (error == 0)
        check_parts(&f);
    close(fd);
}

/* Sets the checksums of the parts as their writer would. */
static void mend_parts(uint8_t *data, size_t bytes, size_t row_bytes)
{
    struct table_part part;
    size_t at = sizeof(struct table_header);
    while (bytes - at >= sizeof part) {
        memcpy(&part, data + at, sizeof part);
        size_t left = bytes - at - sizeof part;
        if (part.rows > left / row_bytes)
            return;
        part.sum = table_part_sum(&part, data + at + sizeof part, part.rows * row_bytes);
        memcpy(data + at, &part, sizeof part);
        at += sizeof part + part.rows * row_bytes;
    }
}

/* Sets the header and the checksums as the writer of this content would. */
static void mend(uint8_t *data, size_t bytes)
{
    struct table_header h;
    struct table_terms terms;
    struct err err;
    if (bytes < sizeof h)
        return;
    memcpy(&h, data, sizeof h);
    memcpy(h.magic, TABLE_MAGIC, sizeof h.magic);
    h.version = TABLE_FILE_VERSION;
    h.reserved = 0;
    h.file_bytes = bytes;
    h.header_sum = state_sum(&h, offsetof(struct table_header, header_sum));
    memcpy(data, &h, sizeof h);
    terms = (struct table_terms){.dim = h.dim, .dtype = h.dtype, .rule = h.rule};
    if (table_terms_check(&terms, "users", &err) == 0)
        mend_parts(data, bytes, table_file_row_bytes(&terms));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *exact = malloc(bytes ? bytes : 1);
    assert(exact);
    memcpy(exact, data, bytes);
    try(exact, bytes);
    mend(exact, bytes);
    try(exact, bytes);
    free(exact);
    return 0;
}
