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

#define ROW_SETTINGS_MAX 64 /* stored changes of the settings of one table */
#define ROW_SUMS_BYTES (1u << 20)
#define ROW_SOURCES_MAX RECORD_ROW_REQUESTS_ALL
#define ROW_WINDOW_KEYS_ALL (8u * RECORD_ROW_REQUESTS_ALL)
#define ROW_SPANS 64 /* copied entries of the directory of one request over a network */

struct table_counts;

/* A pull or push of a worker. It is in one of the lists of row_queues, or among the unused requests
 * of its rank. */
struct row_request {
    struct list link;
    struct worker *worker;
    struct record_rows *record;
    /* Next entry of the directory, next key of this entry. A push over a network uses `entry`
     * alone. */
    uint32_t entry, key;
    bool is_checked; /* all entries of the directory name shards of this lane */
    /* Of a request over a network: entries `spans_first` to spans_first + spans_count - 1 of the
     * directory, and the entry that was checked last. NULL: the table has no such request yet. */
    struct row_span *spans, before;
    uint32_t spans_first, spans_count;
    int error;          /* answer of an ended request; 0: its word; otherwise ERROR with the code */
    uint32_t detail;    /* number of rows that were skipped; shard of a stale route */
    uint64_t first_key; /* key of the first skipped row */
};

/* A read or write of a worker's memory over a network. An aborted one is ignored at its end. */
enum row_fetch_state { FETCH_IDLE, FETCH_POSTED, FETCH_DONE, FETCH_BROKEN };
struct row_fetch {
    enum row_fetch_state state;
    bool is_aborted;
    bool is_window; /* one of row_network.windows */
};

/* Rows of one batch of a part, on their way from the worker. */
struct row_slot {
    struct row_fetch fetch;
    char *memory; /* ROW_SUMS_BYTES */
};

enum port_stage { PORT_FREE, PORT_READS_KEYS, PORT_WRITES_ROWS };
/* Requests of a rank that is connected over a network: one read of a directory, and one run of keys
 * of a pull, at a time. */
struct row_port {
    struct row_fetch directory;
    struct row_request *reader; /* its `spans` are read; NULL: none */
    struct row_fetch fetch;     /* of the pull */
    enum port_stage stage;
    struct row_request *pull; /* NULL: none */
    uint32_t count;           /* keys of the run, from one or several entries */
    bool is_last;             /* the run ends the request */
    char *slot;               /* keys, then rows; NULL: the rank was never connected so */
};

/* Memory for all tables of a job whose workers are connected over a network. */
#define ROW_SLOTS 4
#define AHEAD_RUNS 256
#define AHEAD_BYTES (4u << 20)

/* Keys of a push that follow each other without a gap, and their gradients, of one or several
 * shards. */
struct row_run {
    const struct row_request *push;
    uint32_t first, count; /* keys of the push */
    char *memory;          /* keys, then gradients */
    struct row_fetch keys, rows;
};

/* Shares of pushes that are read before their shards are applied (apply/ahead.h). */
struct row_ahead {
    const struct lane_table *table;  /* NULL: none */
    uint32_t end;                    /* the runs have all short shares of the shards before */
    uint32_t runs_count, posted;     /* runs; runs whose reads are posted or ended */
    struct row_run runs[AHEAD_RUNS]; /* in the order of the pushes */
    char *memory;                    /* AHEAD_BYTES */
};

struct row_network {
    struct row_fetch word;     /* context of words without bytes, whose end nothing waits for */
    struct row_fetch *windows; /* by part */
    uint32_t windows_posted;
    struct row_port *ports; /* by rank */
    struct row_slot slots[ROW_SLOTS];
    char *memory; /* of the slots and of `ahead` */
    struct row_ahead ahead;
    /* The batch that is summed part by part. */
    bool has_batch;
    uint32_t posted, summed; /* parts whose rows were requested, whose rows are in the sums */
    uint32_t order[ROW_SOURCES_MAX];   /* keys of the rows of all parts, relative to apply.at */
    bool has_skipped[ROW_SOURCES_MAX]; /* by key: a gradient is not finite */
};

/* Requests of a rank to a table. */
struct row_rank {
    struct list unused; /* requests */
    uint64_t sequence;  /* number of its last request; 0: none */
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

/* The requests of a table. */
struct row_queues {
    struct row_rank *ranks; /* job.workers_count */
    struct row_request *requests;
    struct record_rows *records; /* one for each request */
    struct list pushes;          /* BSP: in the order of (rank, sequence); else of arrival */
    struct list pulls;           /* in order of arrival */
    struct list done;            /* ended requests whose answers were not sent yet */
};

/* An export or import of a table (bulk/bulk.h). */
struct table_hold {
    bool is_on;      /* no push is applied, with BSP from `clock` on */
    bool loads;      /* an import: no pull is begun, either */
    bool has_loaded; /* rows of the import were stored */
    uint64_t clock;
    /* updates of imported rows, minus the clocks before their import; equal on all lanes */
    uint64_t steps_before;
};

struct lane_table {
    struct list link; /* node in lane_tables.tables */
    struct lane_job *job;
    uint32_t id, shard_bits;
    uint64_t salt;
    struct table_terms *terms; /* with all defaults filled in, and the stage's consistency */
    bool inherits;             /* the consistency is that of the stage */
    char name[TABLE_TERMS_NAME_BYTES_MAX + 1];
    size_t value_bytes, wire_bytes; /* lengths of a row: stored, and in requests */
    row_fn update;
    row_initial_fn initial;
    struct row_initial initial_spec;
    struct table_clocks *clocks;
    uint64_t clock;             /* BSP: all earlier clocks are applied to all shards of this lane */
    struct lane_shard **shards; /* by number; NULL: on another lane */
    uint32_t shard; /* shards before this one have `clock`, or the first push, applied */
    struct row_queues *queues;
    struct row_changes *changes; /* settings */
    struct table_hold *hold;
    struct row_span *spans;      /* ROW_SPANS for each request; NULL: no network */
    struct table_counts *counts; /* counts/table_counts.h; with the memory of the shards */
};

/* The share of a push in the shard that is applied now; same index as in stripe.parts. */
struct apply_part {
    struct row_request *request;
    struct row_span span;
    uint64_t *window;   /* copied keys of the span, because the worker may change its memory */
    uint32_t window_at; /* position in the span of the window's first key */
    uint32_t read;      /* keys of the span that were copied */
    uint32_t shown;     /* keys of the window that the stripe does not have yet */
    const char *rows;   /* gradients of the span, in the worker's memory; valid in one turn */
    /* Over a network: keys of the span that were read ahead, with `rows`; NULL: none */
    const uint64_t *keys;
    /* Otherwise over a network: read of the window; gradients of the batch, by position in the span
     * and by position in row_network.order; rows that are not finite, and the first of their
     * keys. */
    struct row_fetch *fetch; /* NULL: mapped or read ahead */
    uint32_t batch_first, batch_count, batch_order;
    uint32_t skipped;
    uint64_t skipped_key;
};

/* The shard of one table that is applied now, over several turns. */
struct row_apply {
    struct lane_table *table; /* NULL: none */
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

struct lane_tables {
    struct lane_job *job;
    struct allowance allowance; /* memory of all tables of the job */
    struct list tables;
    struct row_apply *apply;
    struct row_network *network; /* NULL: all workers' memory is mapped */
    uint32_t unchecked;          /* requests over a network whose directory is not checked yet */
    bool has_left;               /* a rank has left with a goodbye */
    uint64_t stage;              /* number of the stage of the members; 0: all ranks are members */
    uint64_t busy_ns;            /* lane time of all tables */
    uint64_t largest;            /* largest minimum of all tables */
    uint64_t ended;     /* number of clocks that have ended since the first table was placed */
    uint64_t ended_ns;  /* time of the last end of a clock */
    uint64_t pushes;    /* number of applied pushes to tables with ASP */
    uint64_t pushed_ns; /* time of the last such push */
};

#endif
