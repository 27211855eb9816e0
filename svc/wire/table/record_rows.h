/* Records of tables: ROWS, CLOCK, CLOCKS, TAKEN, and the directory of a request. This header
 * belongs to record.h, whose functions check the records; row_directory.h checks directories.
 * svc/wire/README.md: W25 to W27. */
#ifndef GRADPOOL_WIRE_TABLE_RECORD_ROWS_H
#define GRADPOOL_WIRE_TABLE_RECORD_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#define RECORD_ROW_KEYS_MAX (UINT32_C(1) << 20) /* maximum number of keys of one request */
#define RECORD_ROW_DIM_MAX 4096u                /* maximum number of elements of a row */
#define RECORD_SHARDS_MAX 4096u /* maximum number of shards of a table; a power of two */
#define RECORD_CLOCK_TABLES_MAX 22u
#define RECORD_CLOCKS_RANKS_MAX 8u
/* Largest valid clock and sequence number. The limit prevents an overflow in the sum of two clocks
 * or two sequence numbers. */
#define RECORD_CLOCK_MOST (UINT64_MAX / 2)

/* Maximum number of requests of one worker to one table that a lane stores until it has sent their
 * words. In a job of many workers this maximum is smaller, because the number of requests of all
 * workers together has a limit. */
#define RECORD_ROW_REQUESTS_MAX 128u
#define RECORD_ROW_REQUESTS_ALL 8192u
static inline uint32_t record_row_requests(uint32_t workers)
{
    uint32_t fair = RECORD_ROW_REQUESTS_ALL / (workers ? workers : 1);
    return fair < RECORD_ROW_REQUESTS_MAX ? fair : RECORD_ROW_REQUESTS_MAX;
}

/* Maximum number of requests that a worker may have open. Over a network, a lane may still store
 * one pull of a worker after the pull has ended for the worker: until the writes of rows and word
 * are complete on the lane. */
static inline uint32_t record_row_requests_open(uint32_t workers)
{
    return record_row_requests(workers) - 1;
}

enum record_rows_operation {
    RECORD_PULL = 1, /* the lane writes the rows of the keys to the worker's memory */
    RECORD_PUSH = 2, /* the lane reads a gradient for each key */
};

/* A pull or a push of a worker, for the shards of a table on one lane. Directory, keys and rows lie
 * in lent memory until the word of the request has arrived. All offsets are multiples of 8.
 *
 *   directory  `spans` entries of struct row_span, in ascending order of shards
 *   keys       `keys` mixed keys of 8 bytes, in ascending order; no key occurs twice
 *   rows       `keys` rows of `dim` elements of `dtype`, in the order of the keys
 *
 * The arrays of keys and rows may contain keys of several lanes. The directory lists only the
 * shards of this lane, and thereby the keys of this lane. */
struct record_rows {
    uint8_t kind;      /* RECORD_ROWS */
    uint8_t operation; /* a value of enum record_rows_operation */
    uint8_t dtype;     /* dtype of the rows in the worker's memory, f32, f16 or bf16 */
    uint8_t reserved;  /* always 0 */
    uint32_t table;    /* number that the coordinator gave to the table */
    uint32_t word;     /* returned when the request has ended */
    uint32_t dim;      /* 1 .. RECORD_ROW_DIM_MAX */
    uint64_t clock;    /* clock of the worker, from 1 */
    uint64_t sequence; /* number of the request, counted per worker over all its tables, from 1 */
    uint32_t spans;    /* 1 .. RECORD_SHARDS_MAX, at most `keys` */
    uint32_t keys;     /* 1 .. RECORD_ROW_KEYS_MAX */
    uint32_t directory_region;
    uint32_t keys_region;
    uint32_t rows_region;
    uint32_t reserved_2;       /* always 0 */
    uint64_t directory_offset; /* bytes */
    uint64_t keys_offset;
    uint64_t rows_offset;
};
_Static_assert(sizeof(struct record_rows) == 80, "no holes");

/* The keys of one shard in a request: `count` keys from keys[first] on. */
struct row_span {
    uint32_t shard;
    uint32_t epoch; /* epoch of the shard's route at the worker */
    uint32_t first, count;
};
_Static_assert(sizeof(struct row_span) == 16, "no holes");

enum record_clock_form {
    RECORD_CLOCK_ENDED, /* the worker has ended `clock` in these tables */
    /* like RECORD_CLOCK_ENDED, sent on a new connection after the open requests; `clock` 0: no
     * clock has ended */
    RECORD_CLOCK_STANDING,
    RECORD_CLOCK_SETTINGS, /* settings of a table's updates, from `clock` on */
};

/* Settings of one table (svc/reduce/rows/rows.h). A rule ignores the settings that it does not use.
 * The lane checks the values. */
struct record_row_settings {
    double rate, weight_decay;
    double beta1, beta2, epsilon;
    double beta, l1, l2;
    uint32_t table;
    uint32_t padding[5]; /* always 0 */
};

struct record_clock {
    uint8_t kind;        /* RECORD_CLOCK */
    uint8_t form;        /* a value of enum record_clock_form */
    uint8_t count;       /* number of tables; 0 for settings */
    uint8_t reserved;    /* always 0 */
    uint32_t reserved_2; /* always 0 */
    uint64_t clock;
    uint64_t session;  /* session of the worker; in each session sequence numbers begin at 1 */
    uint64_t sequence; /* number of the worker's last request in this session; 0: none */
    union {
        /* table numbers, ascending; unused elements are 0 */
        uint32_t tables[RECORD_CLOCK_TABLES_MAX];
        struct record_row_settings settings;
    };
};
_Static_assert(sizeof(struct record_clock) == 120, "one ring record, no holes");

/* Reports that the smallest clock of a table's members has increased, or answers a QUERY about a
 * table. The answer lists ranks whose clock is less than the clock of the query, in ascending
 * order. */
struct record_clocks {
    uint8_t kind; /* RECORD_CLOCKS */
    /* 1: this record answers a QUERY; 0: the smallest clock of the table's members has increased */
    uint8_t is_answer;
    uint8_t count;    /* number of ranks in this record */
    uint8_t reserved; /* always 0 */
    uint32_t table;
    uint64_t minimum; /* smallest clock of the members, from 1 */
    uint32_t word;    /* word of the QUERY that this record answers; 0: this record is no answer */
    /* number of all ranks whose clock is less than the clock of the QUERY, including ranks that do
     * not fit into this record */
    uint32_t behind;
    uint32_t ranks[RECORD_CLOCKS_RANKS_MAX];
    uint64_t clocks[RECORD_CLOCKS_RANKS_MAX];
};
_Static_assert(sizeof(struct record_clocks) == 120, "one ring record, no holes");

/* The number of a table in a record: the number of the table in the job, and above it the group.
 * Shards that a copy has brought to another lane have a group, because this lane may have other
 * shards of the same table (A131). Group 0: the shards are where they were placed. */
#define ROW_GROUP_BITS 24
#define ROW_GROUP_MAX 255u
static inline uint32_t row_table_id(uint32_t table, uint32_t group)
{
    return table | group << ROW_GROUP_BITS;
}
static inline uint32_t row_group_of(uint32_t id) { return id >> ROW_GROUP_BITS; }
static inline uint32_t row_table_of(uint32_t id) { return id & ((1u << ROW_GROUP_BITS) - 1); }

/* Replica lane -> owner: the replica lane has applied the blocks of the log before `position`, so
 * the part of the ring that contains these blocks is free. */
struct record_taken {
    uint8_t kind; /* RECORD_TAKEN */
    uint8_t reserved[3];
    uint32_t region; /* memory region of the ring, which the replica lane lends to the owner */
    uint64_t position;
};
_Static_assert(sizeof(struct record_taken) == 16, "no holes");

/* Replica lane -> owner: offers the memory of the ring for copy number `copy`. */
struct record_ring {
    uint8_t kind; /* RECORD_RING */
    uint8_t reserved[3];
    uint32_t copy; /* number that the coordinator gave to the copy, not 0 */
    uint32_t region;
    uint32_t reserved_2; /* always 0 */
    uint64_t offset;     /* bytes; a multiple of 4096 */
};
_Static_assert(sizeof(struct record_ring) == 24, "no holes");

/* Owner -> replica lane: the blocks of the log before `position` have landed. */
struct record_logged {
    uint8_t kind; /* RECORD_LOGGED */
    uint8_t reserved[3];
    uint32_t copy;
    uint64_t position;
};
_Static_assert(sizeof(struct record_logged) == 16, "no holes");

/* Returns whether the record is valid. Called by record_check() for a record of this kind. The
 * check uses no state, and no memory outside the record. */
bool record_rows_are_sound(const struct record_rows *rows);
bool record_clock_is_sound(const struct record_clock *clock);
bool record_clocks_are_sound(const struct record_clocks *clocks);
bool record_taken_is_sound(const struct record_taken *taken);
bool record_ring_is_sound(const struct record_ring *ring);
bool record_logged_is_sound(const struct record_logged *logged);

#endif
