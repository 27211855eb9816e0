/* The log of changed rows that an owner writes for a replica lane: blocks in a ring. The replica
 * lane owns the memory of the ring, and the owner writes there without its help.
 *
 * A block counts if its position is the next one, it belongs to this copy, and its checksum is
 * right. The ring alone therefore shows which blocks have landed: a block that is torn, or left
 * from an earlier lap, does not count (A127). Positions are bytes since the begin of the copy;
 * position p lies at offset p % LOG_RING_BYTES. No block passes the end of the ring.
 *
 * The functions use no memory but their arguments. Writer and reader are in different processes. */
#ifndef GRADPOOL_LANE_TABLE_LOG_H
#define GRADPOOL_LANE_TABLE_LOG_H

#include "svc/lane/table/shard.h"

#define LOG_RING_BYTES (UINT64_C(8) << 20)
#define LOG_LINE_BYTES 64u
#define LOG_BLOCK_BYTES_MAX (1u << 20) /* bytes of a block, with its head */
#define LOG_PAYLOAD_BYTES_MAX (LOG_BLOCK_BYTES_MAX - LOG_LINE_BYTES)

enum log_kind {
    LOG_ROWS = 1, /* changed rows, and the progress that includes their changes */
    LOG_COPY,     /* rows of the first copy of all rows; the progress is not valid */
    LOG_STATE,    /* state of a table without its rows */
    LOG_WHOLE,    /* the copy is whole: all later changes of all tables follow */
    LOG_PAD,      /* ends a lap of the ring; log_next() passes such blocks */
};

/* The head of a block, which the payload follows. log_seal() sets sum, position, bytes, copy and
 * payload_bytes. */
struct log_head {
    uint64_t sum; /* checksum of all following bytes of the block */
    uint64_t position;
    uint32_t bytes; /* length of the block with head and padding; a multiple of LOG_LINE_BYTES */
    uint32_t copy;  /* number of the copy, not 0 */
    uint32_t kind;  /* a value of enum log_kind */
    uint32_t table;
    uint32_t payload_bytes;
    uint32_t shard; /* shard of the rows */
    /* Progress of the table. The clock (with BSP) or the push of `rank` with sequence number
     * `clock` (without BSP) is applied to all shards before `at_shard`, and in `at_shard` to all
     * mixed keys below `next`. */
    uint32_t rank, at_shard;
    uint64_t clock, next;
};
_Static_assert(sizeof(struct log_head) == LOG_LINE_BYTES, "no holes");

/* ---- the owner ---- */

struct log_writer {
    uint32_t copy;
    uint64_t taken;      /* the replica lane has applied all blocks before this position */
    uint64_t end;        /* position after the last block */
    uint32_t open_bytes; /* length of the open block; 0: no block is open */
};

void log_writer_init(struct log_writer *writer, uint32_t copy);
/* Returns whether the ring has room for a block with this payload (LOG_PAYLOAD_BYTES_MAX at
 * most). */
bool log_has_room(const struct log_writer *writer, size_t payload_bytes);
/* Begins a block in the memory of a ring, or in memory of the same length that will be written to
 * the ring. Returns the place of the payload; NULL: no room. Also writes the padding before the end
 * of the ring. */
void *log_open(struct log_writer *writer, char *ring, size_t payload_bytes);
/* Completes the open block. The caller sets kind, table, shard and progress of `head`. The payload
 * may be shorter than at log_open(). */
void log_seal(struct log_writer *writer, char *ring, const struct log_head *head,
              size_t payload_bytes);
/* Frees the room of the blocks before `position`, which the replica lane has applied. Returns 0, or
 * -EBADMSG if no block ends at `position`; nothing has changed then. An earlier position has no
 * effect. */
int log_take(struct log_writer *writer, uint64_t position);

/* ---- the replica lane ---- */

struct log_reader {
    uint32_t copy;
    uint64_t position; /* position of the next block */
};

void log_reader_init(struct log_reader *reader, uint32_t copy);
/* Finds the next block that counts, and passes padding. `ret_payload` lies in the ring, so another
 * process may still change the payload, but not `ret_head`. Returns false if no block counts. */
bool log_next(struct log_reader *reader, const char *ring, struct log_head *ret_head,
              const void **ret_payload);
/* Moves the reader behind the block that log_next() has found. */
void log_pass(struct log_reader *reader, const struct log_head *head);

/* Returns the checksum of a block. The caller has checked `head->bytes`. */
uint64_t log_block_sum(const struct log_head *head, const char *payload);

/* ---- rows ---- */

/* Returns the number of rows of `row_bytes` that a payload has room for, 1 at least. */
uint32_t log_rows_max(uint32_t row_bytes);
/* Copies rows of the shard, in the order of mixed keys, from `from` on. A copied row has its key,
 * values and moments. Returns the number of bytes, which are whole rows. `ret_next`: smallest key
 * of the rest. `ret_is_end`: no row follows. */
size_t log_walk(const struct table_shard *shard, uint64_t from, char *ret_rows, size_t most,
                uint64_t *ret_next, bool *ret_is_end);
/* Stores the rows of a payload, which replace rows with the same keys. -EBADMSG: not whole rows, or
 * a key of another shard. After an error some rows may be stored. After an error of
 * table_shard_add() the call may be repeated. */
int log_apply(struct table_shard *shard, const void *payload, size_t bytes);

#endif
