/* Blocks of the log of changed rows. The checksum has four independent sums, so that the processor
 * computes them at the same time. RULES.md: A127. */
#include "svc/lane/table/log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define SUM_LANES 4u
#define SUM_PRIME UINT64_C(0x9e3779b97f4a7c15)
#define LOG_BATCH 64u

/* ---- checksum ---- */

static uint64_t sum_mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * SUM_PRIME;
    return sum ^ sum >> 29;
}

/* Computes the sum without the first word of the block, which is the checksum itself. */
uint64_t log_block_sum(const struct log_head *head, const char *payload)
{
    uint64_t sums[SUM_LANES] = {1, 2, 3, 4}, words[SUM_LANES];
    const char *from = (const char *)head;
    for (size_t at = sizeof head->sum; at < sizeof *head; at += sizeof *words) {
        memcpy(words, from + at, sizeof *words);
        sums[0] = sum_mix(sums[0], words[0]);
    }
    for (size_t at = 0; at < head->bytes - sizeof *head; at += sizeof words) {
        memcpy(words, payload + at, sizeof words);
        for (uint32_t i = 0; i < SUM_LANES; i++)
            sums[i] = sum_mix(sums[i], words[i]);
    }
    for (uint32_t i = 1; i < SUM_LANES; i++)
        sums[0] = sum_mix(sums[0], sums[i]);
    return sums[0];
}

/* ---- the owner ---- */

static uint32_t block_bytes(size_t payload_bytes)
{
    size_t bytes = sizeof(struct log_head) + payload_bytes;
    return (uint32_t)((bytes + LOG_LINE_BYTES - 1) / LOG_LINE_BYTES * LOG_LINE_BYTES);
}

/* Returns the bytes between the last block and the end of the ring if a block of `bytes` does not
 * fit there, otherwise 0. */
static uint64_t log_pad_bytes(uint64_t end, uint32_t bytes)
{
    uint64_t left = LOG_RING_BYTES - end % LOG_RING_BYTES;
    return bytes > left ? left : 0;
}

void log_writer_init(struct log_writer *writer, uint32_t copy)
{
    *writer = (struct log_writer){.copy = copy};
}

bool log_has_room(const struct log_writer *writer, size_t payload_bytes)
{
    uint32_t bytes = block_bytes(payload_bytes);
    uint64_t used = writer->end - writer->taken;
    return used + log_pad_bytes(writer->end, bytes) + bytes <= LOG_RING_BYTES;
}

/* Stores a head after its payload, so that a reader of the same memory never finds a head whose
 * payload is not stored yet. */
static void log_put(struct log_writer *writer, char *ring, struct log_head *head)
{
    char *at = ring + writer->end % LOG_RING_BYTES;
    head->position = writer->end;
    head->copy = writer->copy;
    head->sum = log_block_sum(head, at + sizeof *head);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(at, head, sizeof *head);
    writer->end += head->bytes;
}

/* Passes the rest of the ring with one block. The block has LOG_LINE_BYTES without a payload, and
 * the next block begins at the start of the ring. */
static void log_pad(struct log_writer *writer, char *ring, uint64_t bytes)
{
    struct log_head pad = {.kind = LOG_PAD, .bytes = LOG_LINE_BYTES};
    uint64_t end = writer->end + bytes;
    log_put(writer, ring, &pad);
    writer->end = end;
}

void *log_open(struct log_writer *writer, char *ring, size_t payload_bytes)
{
    assert(payload_bytes <= LOG_PAYLOAD_BYTES_MAX && writer->open_bytes == 0);
    if (!log_has_room(writer, payload_bytes))
        return NULL;
    uint32_t bytes = block_bytes(payload_bytes);
    uint64_t pad = log_pad_bytes(writer->end, bytes);
    if (pad > 0)
        log_pad(writer, ring, pad);
    writer->open_bytes = bytes;
    return ring + writer->end % LOG_RING_BYTES + sizeof(struct log_head);
}

void log_seal(struct log_writer *writer, char *ring, const struct log_head *head,
              size_t payload_bytes)
{
    struct log_head sealed = *head;
    sealed.bytes = block_bytes(payload_bytes);
    sealed.payload_bytes = (uint32_t)payload_bytes;
    assert(writer->open_bytes > 0 && sealed.bytes <= writer->open_bytes);
    char *payload = ring + writer->end % LOG_RING_BYTES + sizeof sealed;
    memset(payload + payload_bytes, 0, sealed.bytes - sizeof sealed - payload_bytes);
    writer->open_bytes = 0;
    log_put(writer, ring, &sealed);
}

int log_take(struct log_writer *writer, uint64_t position)
{
    if (position > writer->end || position % LOG_LINE_BYTES != 0)
        return -EBADMSG;
    if (position > writer->taken)
        writer->taken = position;
    return 0;
}

/* ---- the replica lane ---- */

void log_reader_init(struct log_reader *reader, uint32_t copy)
{
    *reader = (struct log_reader){.copy = copy};
}

/* Returns whether the head belongs to the next block, and the block lies in the ring. */
static bool head_is_next(const struct log_reader *reader, const struct log_head *head)
{
    uint64_t left = LOG_RING_BYTES - reader->position % LOG_RING_BYTES;
    return head->copy == reader->copy && head->position == reader->position &&
           head->bytes >= sizeof *head && head->bytes <= LOG_BLOCK_BYTES_MAX &&
           head->bytes % LOG_LINE_BYTES == 0 && head->bytes <= left &&
           head->payload_bytes <= head->bytes - sizeof *head && head->kind >= LOG_ROWS &&
           head->kind <= LOG_PAD;
}

/* Copies the head first, because the other process may change the ring during the check. */
static bool log_find(const struct log_reader *reader, const char *ring, struct log_head *ret_head)
{
    const char *at = ring + reader->position % LOG_RING_BYTES;
    memcpy(ret_head, at, sizeof *ret_head);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return head_is_next(reader, ret_head) &&
           log_block_sum(ret_head, at + sizeof *ret_head) == ret_head->sum;
}

bool log_next(struct log_reader *reader, const char *ring, struct log_head *ret_head,
              const void **ret_payload)
{
    if (!log_find(reader, ring, ret_head))
        return false;
    if (ret_head->kind == LOG_PAD) {
        reader->position += LOG_RING_BYTES - reader->position % LOG_RING_BYTES;
        if (!log_find(reader, ring, ret_head) || ret_head->kind == LOG_PAD)
            return false;
    }
    *ret_payload = ring + reader->position % LOG_RING_BYTES + sizeof *ret_head;
    return true;
}

void log_pass(struct log_reader *reader, const struct log_head *head)
{
    reader->position += head->bytes;
}

/* ---- rows ---- */

uint32_t log_rows_max(uint32_t row_bytes) { return LOG_PAYLOAD_BYTES_MAX / row_bytes; }

size_t log_walk(const struct table_shard *shard, uint64_t from, char *ret_rows, size_t most,
                uint64_t *ret_next, bool *ret_is_end)
{
    uint32_t rows[LOG_BATCH], row_bytes = shard->rows.row_bytes;
    size_t bytes = 0;
    *ret_next = from;
    *ret_is_end = false;
    while (!*ret_is_end && bytes + row_bytes <= most) {
        size_t fit = (most - bytes) / row_bytes, wanted = fit < LOG_BATCH ? fit : LOG_BATCH;
        size_t count = table_shard_walk(shard, *ret_next, rows, wanted);
        for (size_t i = 0; i < count; i++, bytes += row_bytes)
            memcpy(ret_rows + bytes, rows_at(&shard->rows, rows[i]), row_bytes);
        uint64_t last = count > 0 ? rows_key(&shard->rows, rows[count - 1]) : UINT64_MAX;
        *ret_is_end = count < wanted || last == UINT64_MAX;
        *ret_next = last + !*ret_is_end;
    }
    return bytes;
}

static int log_apply_batch(struct table_shard *shard, const char *from, size_t count)
{
    uint64_t keys[LOG_BATCH];
    uint32_t rows[LOG_BATCH], row_bytes = shard->rows.row_bytes;
    for (size_t i = 0; i < count; i++)
        memcpy(&keys[i], from + i * row_bytes, sizeof keys[i]);
    for (size_t i = 0; i < count; i++)
        if (!table_shard_has_range(shard, keys[i]))
            return -EBADMSG;
    int64_t added = table_shard_add(shard, keys, count, rows);
    for (size_t i = 0; added >= 0 && i < count; i++)
        memcpy(rows_at(&shard->rows, rows[i]) + sizeof keys[i],
               from + i * row_bytes + sizeof keys[i], row_bytes - sizeof keys[i]);
    return added < 0 ? (int)added : 0;
}

int log_apply(struct table_shard *shard, const void *payload, size_t bytes)
{
    size_t row_bytes = shard->rows.row_bytes;
    if (bytes % row_bytes != 0)
        return -EBADMSG;
    int error = 0;
    for (size_t left = bytes / row_bytes, at = 0; error == 0 && left > 0;) {
        size_t count = left < LOG_BATCH ? left : LOG_BATCH;
        error = log_apply_batch(shard, (const char *)payload + at * row_bytes, count);
        left -= count;
        at += count;
    }
    return error;
}
