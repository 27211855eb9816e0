/* Fuzzes the ring of a log of changed rows with a hostile owner. The first eight bytes are the
 * position of the reader, the next byte says whether the checksum is made right, and the rest is
 * written to the ring at this position. Either no block counts, or the block lies in the ring, and
 * its rows are refused or lie in their shard. */
#include "svc/lane/table/log.h"
#include "test/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 9
#define COPY 1
#define SHARD 2
#define SHARD_BITS 2
#define VALUES 2

static int log_alloc(void *context, size_t bytes, void **ret_memory)
{
    size_t alignment = bytes >= 4096 ? 4096 : 16;
    *ret_memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    assert(*ret_memory);
    memset(*ret_memory, 0, bytes);
    return 0;
}

static void log_free(void *context, void *memory, size_t bytes) { free(memory); }

static void log_birth(void *context, uint64_t mixed, void *ret_values) {}

static void apply(const void *payload, size_t bytes)
{
    struct allowance allowance = {.alloc = log_alloc, .free = log_free, .limit_bytes = UINT64_MAX};
    struct shard_options options = {.number = SHARD,
                                    .shard_bits = SHARD_BITS,
                                    .layout = rows_layout(VALUES * sizeof(float), VALUES),
                                    .birth = log_birth};
    struct table_shard shard;
    uint32_t row;
    assert(table_shard_init(&shard, &allowance, &options) == 0);
    int error = log_apply(&shard, payload, bytes);
    assert(error == 0 || error == -EBADMSG || error == -ENOSPC);
    assert(error < 0 || shard.rows.count <= bytes / shard.rows.row_bytes);
    for (uint64_t from = 0; table_shard_walk(&shard, from, &row, 1) == 1;) {
        uint64_t key = rows_key(&shard.rows, row);
        assert(table_shard_has_range(&shard, key));
        if (key == UINT64_MAX)
            break;
        from = key + 1;
    }
    table_shard_fini(&shard);
    assert(allowance.used_bytes == 0);
}

/* Makes the checksum right if the length of the block is possible. */
static void repair(char *at, uint64_t left)
{
    struct log_head head;
    memcpy(&head, at, sizeof head);
    if (head.bytes < sizeof head || head.bytes > left || head.bytes % LOG_LINE_BYTES != 0)
        return;
    head.sum = log_block_sum(&head, at + sizeof head);
    memcpy(at, &head, sizeof head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char *ring;
    struct log_reader reader;
    struct log_head head;
    const void *payload;
    if (bytes < HEAD_BYTES)
        return 0;
    ring = ring ? ring : calloc(1, LOG_RING_BYTES);
    assert(ring);
    log_reader_init(&reader, COPY);
    memcpy(&reader.position, data, sizeof reader.position);
    reader.position -= reader.position % LOG_LINE_BYTES;
    size_t offset = reader.position % LOG_RING_BYTES, left = LOG_RING_BYTES - offset;
    size_t rest = bytes - HEAD_BYTES < left ? bytes - HEAD_BYTES : left;
    memcpy(ring + offset, data + HEAD_BYTES, rest);
    if (data[8] & 1)
        repair(ring + offset, left);
    if (log_next(&reader, ring, &head, &payload)) {
        const char *from = payload;
        assert(head.copy == COPY && head.position == reader.position);
        assert(from >= ring + sizeof head && from + head.payload_bytes <= ring + LOG_RING_BYTES);
        apply(payload, head.payload_bytes);
    }
    memset(ring + offset, 0, rest > sizeof head || left < sizeof head ? rest : sizeof head);
    return 0;
}
