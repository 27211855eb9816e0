/* Fuzzes a pack of a peer. Every item must be within the pack, no byte may belong to two items, and
 * the items must end exactly at the end of the pack. */
#include "svc/fabric/ofi/message/item.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Reads all of a body, so that the sanitizer detects a byte outside the pack. */
static unsigned touch(const uint8_t *body, size_t bytes)
{
    unsigned sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum += body[i];
    return sum;
}

static void check_write(const uint8_t *body, size_t bytes)
{
    struct ofi_item_write write;
    size_t write_bytes = SIZE_MAX;
    int r = ofi_item_write_head(body, bytes, &write, &write_bytes);
    assert((r == 0) == (bytes >= sizeof write));
    assert(r == 0 ? write_bytes == bytes - sizeof write : r == -EPROTO && write_bytes == SIZE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *pack = malloc(bytes ? bytes : 1);
    assert(pack);
    memcpy(pack, data, bytes);
    const uint8_t *at = pack, *body;
    struct ofi_item item;
    size_t left = bytes;
    int r = 0;
    while (left > 0 && (r = ofi_item_next(&at, &left, &item, &body)) == 0) {
        assert(body + ofi_item_padded(item.bytes) == at && at + left == pack + bytes);
        (void)touch(body, item.bytes);
        if (item.kind != OFI_ITEM_USER)
            check_write(body, item.bytes);
    }
    assert(r == 0 || r == -EPROTO);
    free(pack);
    return 0;
}
