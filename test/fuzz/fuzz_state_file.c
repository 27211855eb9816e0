/* Fuzzes the index of a snapshot file. Either the file is refused with a reason, or all its extents
 * are within the file. The checksums would refuse most inputs, so each input is also tried with
 * correct checksums. */
#include "svc/state/state_file.h"
#include "svc/state/state_layout.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void check_sound(const struct state_file *f, uint64_t file_bytes)
{
    assert(f->file_bytes == file_bytes && f->tables_offset <= file_bytes);
    for (size_t i = 0; i < f->count; i++) {
        const struct state_tensor *t = &f->tensors[i];
        assert(strlen(t->name) >= 1 && strlen(t->name) <= STATE_NAME_BYTES_MAX);
        assert(t->offset <= file_bytes && state_tensor_bytes(t) <= file_bytes - t->offset);
        assert(state_file_find(f, t->name) == t);
    }
}

static void try(const uint8_t *data, size_t bytes, uint64_t file_bytes)
{
    struct state_file f = {.fd = -1};
    struct err err = {0};
    int r = state_index_read((const char *)data, bytes, file_bytes, &f, &err);
    assert(r == 0 || ((r == -EBADMSG || r == -EPROTO || r == -ENOMEM) && err.text[0]));
    if (r == 0)
        check_sound(&f, file_bytes);
    free(f.tensors);
}

/* Sets the header and the checksums as the writer of this content would. */
static void mend(uint8_t *data, size_t bytes)
{
    struct state_header h;
    if (bytes < sizeof h)
        return;
    memcpy(&h, data, sizeof h);
    memcpy(h.magic, STATE_MAGIC, sizeof h.magic);
    if (h.version != STATE_FILE_VERSION_TABLES)
        h.version = STATE_FILE_VERSION;
    h.index_bytes = bytes - sizeof h;
    h.index_sum = state_sum(data + sizeof h, bytes - sizeof h);
    h.header_sum = state_sum(&h, offsetof(struct state_header, header_sum));
    memcpy(data, &h, sizeof h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct state_header h = {0};
    uint8_t *exact = malloc(bytes ? bytes : 1);
    assert(exact);
    memcpy(exact, data, bytes);
    try(exact, bytes, bytes);
    memcpy(&h, exact, bytes < sizeof h ? bytes : sizeof h);
    try(exact, bytes, h.file_bytes);
    mend(exact, bytes);
    try(exact, bytes, h.file_bytes);
    free(exact);
    return 0;
}
