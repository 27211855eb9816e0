/* The structs of a job's tables on a lane. Ownership: lane_job > lane_tables > lane_table > shards
 * and requests. All memory is in the job's account. */
#ifndef GRADPOOL_LANE_ROWS_TYPES_H
#define GRADPOOL_LANE_ROWS_TYPES_H

#include "svc/lane/table/clock.h"
#include "svc/lane/table/shard.h"
#include "svc/lane/table/stripe.h"
#include "svc/lane/types.h"
#include "svc/reduce/rows/rows.h"
#include "svc/wire/table/row_directory.h"
#include "svc/wire/table/table_terms.h"

#define ROW_SETTINGS_MAX 64 /* maximum number of stored settings of one table */
#define ROW_SUMS_BYTES (1u << 20)
#define ROW_SOURCES_MAX RECORD_ROW_REQUESTS_ALL
#define ROW_WINDOW_KEYS_ALL (8u * RECORD_ROW_REQUESTS_ALL)
#define ROW_SPANS 64 /* maximum number of copied directory entries of a request over a network */

struct table_counts;
struct row_log;

/* A pull or push of a worker. A request is always in a list: one of row_queues, or
 * row_rank.unused. */
struct row_request {
    struct list link;
    struct worker *worker;
    struct record_rows *record;
    /* Number of the next directory entry, and of the next key in this entry. A push over a network
     * uses `entry` alone. */
    uint32_t entry, key;
    /* the check of the directory has ended; without an error, all entries name shards of this
     * lane */
    bool is_checked;
    /* For a request over a network. `spans`: copied entries of the directory, spans_count from
     * `spans_first` on; NULL: no worker was connected over a network yet. `before`: the entry that
     * was checked last. */
    struct row_span *spans, before;
    uint32_t spans_first, spans_count;
    /* answer of an ended request; 0: its word is sent; otherwise an ERROR with this code */
    int error;
    uint32_t detail;    /* with -EDOM: number of skipped rows; with -ESTALE: shard of the route */
    uint64_t first_key; /* key of the first skipped row */
    uint64_t logged;    /* ended push: position in the log after its rows; 0: no log */
};

/* A read or write of a worker's memory over a network. The result of an aborted operation is
 * ignored. */
enum row_fetch_state { FETCH_IDLE, FETCH_POSTED, FETCH_DONE, FETCH_BROKEN };
struct row_fetch {
    enum row_fetch_state state;
    bool is_aborted;
    bool is_window; /* the operation is an entry of row_network.windows */
};

/* Rows of one batch of a part, which are being read from the worker. */
struct row_slot {
    struct row_fetch fetch;
    char *memory; /* ROW_SUMS_BYTES */
};

enum port_stage { PORT_FREE, PORT_READS_KEYS, PORT_WRITES_ROWS };
/* Operations of a rank that is connected over a network. At a time, the rank has at most one read
 * of a directory and one run of keys of a pull. */
struct row_port {
    struct row_fetch directory;
    /* request whose directory is being read into its `spans`; NULL: none */
    struct row_request *reader;
    struct row_fetch fetch; /* read or write of the pull's keys or rows */
    enum port_stage stage;
    struct row_request *pull; /* pull that has a run of keys; NULL: none */
    /* number of keys of the run, which come from one or several entries */
    uint32_t count;
    bool is_last; /* the run ends the request */
    /* memory for keys, followed by rows; NULL: the rank was never connected over a network */
    char *slot;
};

/* Memory for all tables of a job whose workers are connected over a network. */
#define ROW_SLOTS 4
#define AHEAD_RUNS 256
#define AHEAD_BYTES (4u << 20)

/* Keys of a push that follow each other without a gap, with their gradients. The keys belong to one
 * or several shards. */
struct row_run {
    const struct row_request *push;
    uint32_t first, count; /* position of the first key in the push, and number of keys */
    char *memory;          /* keys, then gradients */
    struct row_fetch keys, rows;
};

/* Shares of pushes that are read before their shards are applied (apply/ahead.h). */
struct row_ahead {
    const struct lane_table *table; /* table whose pushes are read ahead; NULL: none */
    uint32_t end; /* all short shares of the shards before this number are in the runs */
    /* number of runs; number of runs whose reads are posted or complete */
    uint32_t runs_count, posted;
    struct row_run runs[AHEAD_RUNS]; /* in the order of the pushes */
    char *memory;                    /* AHEAD_BYTES */
};

struct row_network {
    /* context of completion words that are sent without rows; their completion events are
     * ignored */
    struct row_fetch word;
    struct row_fetch *windows; /* array with one entry for each part */
    uint32_t windows_posted;
    struct row_port *ports; /* array with one entry for each rank */
    struct row_slot slots[ROW_SLOTS];
    char *memory; /* memory of the slots and of `ahead` */
    struct row_ahead ahead;
    /* The batch that is summed part by part. */
    bool has_batch;
    /* number of parts whose rows were requested; number of parts whose rows are in the sums */
    uint32_t posted, summed;
    uint32_t order[ROW_SOURCES_MAX]; /* for each row of all parts: number of its key in the batch */
    bool has_skipped[ROW_SOURCES_MAX]; /* for each key of the batch: a gradient is not finite */
};

/* Requests of a rank to a table. */
struct row_rank {
    struct list unused; /* list of requests that are not in use */
    uint64_t sequence;  /* sequence number of the rank's last request; 0: the rank has sent none */
    uint64_t applied;   /* without BSP: sequence number of the rank's last applied push */
    uint64_t clock; /* in a copy: clock that the rank gets at a promotion; CLOCK_NONE: no member */
    /* the lane was promoted, and the rank has not repeated its requests and its clock yet */
    bool must_stand;
};

struct lane_shard {
    uint32_t epoch;
    struct shard_progress progress;
    struct table_shard *store;
};

struct row_setting {
    uint64_t clock; /* first clock that uses the settings */
    struct row_settings settings;
};

struct row_changes {
    struct row_setting each[ROW_SETTINGS_MAX]; /* ascending clocks */
    uint32_t count;
};

/* Progress in a copy of a table, and after the promotion of the copy. With BSP only `next` and
 * `minimum` are used. */
struct row_progress {
    uint64_t sequence, next; /* push in progress (0: none), as in struct log_head */
    uint32_t rank, shard;
    uint64_t minimum; /* smallest clock of the members when the state was logged */
};

/* Place of a table in the log of changed rows. */
struct row_logged {
    bool is_left_out;  /* the table has failed, so the log does not contain it */
    bool is_walked;    /* the copy in progress has all rows of the table (log/row_log.h) */
    bool is_state_due; /* the log has to contain the state of the table again */
    uint64_t stage;    /* in a copy: number of the stage when the state was logged */
    struct row_progress progress;
};

/* The requests of a table. */
struct row_queues {
    struct row_rank *ranks; /* array of job.workers_count entries */
    struct row_request *requests;
    struct record_rows *records; /* one for each request */
    /* with BSP in the order of (rank, sequence), otherwise in the order of arrival */
    struct list pushes;
    struct list pulls; /* in order of arrival */
    struct list done;  /* ended requests whose answers were not sent yet */
    struct row_logged logged;
};

/* An export or import of a table (bulk/bulk.h). */
struct table_hold {
    bool is_on;      /* no push is applied; with BSP, no push of `clock` or a later clock */
    bool loads;      /* the hold is for an import, so no pull begins, either */
    bool has_loaded; /* rows of the import were stored */
    uint64_t clock;
    /* number of updates of the imported rows, minus the number of clocks before the import; the
     * same on all lanes */
    uint64_t steps_before;
};

struct lane_table {
    struct list link; /* node in lane_tables.tables */
    struct lane_job *job;
    uint32_t id, shard_bits;
    uint64_t salt;
    struct table_terms *terms; /* with all defaults filled in, and the stage's consistency */
    bool inherits;             /* the table uses the consistency of the stage */
    char name[TABLE_TERMS_NAME_BYTES_MAX + 1];
    size_t value_bytes, wire_bytes; /* bytes of a row in the store; bytes of a row in requests */
    row_fn update;
    row_initial_fn initial;
    struct row_initial initial_spec;
    struct table_clocks *clocks;
    /* BSP: all earlier clocks are applied to all shards of this lane */
    uint64_t clock;
    struct lane_shard **shards; /* indexed by number; NULL: the shard is on another lane */
    /* `clock`, or without BSP the first push, is applied to all shards before this one */
    uint32_t shard;
    struct row_queues *queues;
    struct row_changes *changes; /* settings */
    struct table_hold *hold;
    /* ROW_SPANS entries for each request; NULL: no worker is connected over a network */
    struct row_span *spans;
    /* counts of the table (counts/table_counts.h), including the memory of its shards */
    struct table_counts *counts;
};

/* The share of a push in the shard that the lane updates now. The index is the same as in
 * stripe.parts. */
struct apply_part {
    struct row_request *request;
    struct row_span span;
    uint64_t *window;   /* copied keys of the span, because the worker may change its memory */
    uint32_t window_at; /* position in the span of the window's first key */
    uint32_t read;      /* keys of the span that were copied */
    uint32_t shown;     /* number of keys of the window that are not in the stripe yet */
    /* gradients of the span, in the worker's memory; the pointer is valid within one turn */
    const char *rows;
    /* Over a network: keys of the span that were read ahead together with `rows`; NULL: the span
     * was not read ahead */
    const uint64_t *keys;
    /* Otherwise over a network. `fetch`: read of the window. batch_first, batch_order: position of
     * the batch's first gradient, in the span and in row_network.order. `skipped`: number of rows
     * with NaN or infinity; skipped_key: smallest of their keys. */
    struct row_fetch *fetch; /* NULL: the memory is mapped, or the keys were read ahead */
    uint32_t batch_first, batch_count, batch_order;
    uint32_t skipped;
    uint64_t skipped_key;
};

/* The shard of a table to which the lane applies pushes, over several turns. */
struct row_apply {
    struct lane_table *table; /* table of this shard; NULL: no shard is being updated */
    bool is_open;             /* the stripe has all parts, with their first windows */
    bool is_fetched;          /* a part has a fetch */
    bool is_cut;              /* the stripe is cut, and its rows are open */
    uint32_t at;              /* number of applied keys of the cut stripe */
    struct row_step step;
    struct stripe *stripe;
    struct apply_part *parts;
    uint32_t parts_count;
    uint64_t *windows;    /* ROW_WINDOW_KEYS_ALL keys for all parts */
    uint32_t window_keys; /* keys of one window */
    float *sums;          /* ROW_SUMS_BYTES */
    float *row;           /* one row in f32 */
};

struct row_room;

struct lane_tables {
    struct lane_job *job;
    struct allowance allowance; /* memory of all tables of the job, without the rows */
    struct row_room *room;      /* memory of the rows (room/room.h) */
    struct list tables;
    struct row_apply *apply;
    struct row_network *network; /* NULL: all workers' memory is mapped */
    uint32_t unchecked;          /* requests over a network whose directory is not checked yet */
    bool has_left;               /* a rank has left with a goodbye */
    uint64_t stage;              /* number of the stage of the members; 0: all ranks are members */
    uint64_t busy_ns;            /* lane time of all tables */
    uint64_t largest;            /* largest clocks->minimum of all tables */
    uint64_t ended;      /* number of clocks that have ended since the first table was placed */
    uint64_t ended_ns;   /* time of the last end of a clock */
    uint64_t pushes;     /* number of applied pushes to tables with ASP */
    uint64_t pushed_ns;  /* time of the last such push */
    struct row_log *log; /* log of changed rows; NULL: no replica lane was ever named */
    struct list copies;  /* copies of tables of other lanes (copy/copy.h) */
};

#endif
