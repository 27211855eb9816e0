/* Lanes with one table, and workers that push and pull with the client's own code. With two lanes,
 * each lane has every second shard. */
#ifndef GRADPOOL_TEST_ROWS_RIG_H
#define GRADPOOL_TEST_ROWS_RIG_H

#include "client/lib/table/clock.h"
#include "client/lib/table/fold.h"
#include "client/lib/table/request.h"
#include "svc/reduce/rows/rows.h"
#include "svc/wire/table/table_terms.h"
#include "test/unit/lane/lane_rig.h"

#define ROWS_TABLE 3
#define ROWS_LANES_MAX 2
#define ROWS_SALT UINT64_C(0x5a17)
#define ROWS_EPOCH 2

struct rows_worker {
    struct worker_clock clock;
    uint64_t used; /* bytes of its region */
    uint32_t word;
};

/* A request of a worker. */
struct rows_asked {
    uint32_t rank, word;
    struct table_keys keys;
    struct table_request request;
    struct request_part parts[ROWS_LANES_MAX];
};

struct rows_rig {
    struct rig lanes[ROWS_LANES_MAX];
    uint32_t lanes_count, workers_count;
    uint32_t absent_count; /* number of last ranks that never connect */
    bool has_no_table;
    struct table_terms terms;
    struct table_route route;
    struct rows_worker workers[RIG_WORKERS_MAX];
};

/* Fabric of all lanes: "ofi" if this is the first argument of the program, otherwise "shm". */
extern const char *rows_kind;
/* Bytes of memory of a worker. Each start of a rig populates this memory, so tests with many starts
 * need a small value. */
extern size_t rows_region_bytes;
void rows_set_kind(int argc, char **argv);
bool rows_are_mapped(void);

/* Starts lanes and workers, and places the table. */
void rows_start(struct rows_rig *r, uint32_t lanes, uint32_t workers,
                const struct table_terms *terms);
/* Like rows_start() with one lane, to which the last rank never connects. */
void rows_start_without_last(struct rows_rig *r, uint32_t workers, const struct table_terms *terms);
/* Like rows_start() with one lane, which has the job, but not the table. */
void rows_start_without_table(struct rows_rig *r, uint32_t workers,
                              const struct table_terms *terms);
void rows_stop(struct rows_rig *r);
/* Sends settings to all lanes, from rank 0, for the clock of rank 0. */
void rows_set(struct rows_rig *r, const struct row_settings *settings);
/* Begins a push or a pull of `count` keys. Gradients are f32 in the caller's order. The caller ends
 * the request with rows_asked_free(). */
struct rows_asked *rows_push(struct rows_rig *r, uint32_t rank, const uint64_t *keys, size_t count,
                             const float *gradients);
struct rows_asked *rows_pull(struct rows_rig *r, uint32_t rank, const uint64_t *keys, size_t count);
void rows_asked_free(struct rows_asked *asked);
/* Ends the clock of the rank. */
void rows_clock(struct rows_rig *r, uint32_t rank);
/* Returns whether every lane of the request has sent its word. */
bool rows_is_done(const struct rows_rig *r, const struct rows_asked *asked);
/* Waits for the words of a request. */
void rows_wait(struct rows_rig *r, const struct rows_asked *asked);
/* Waits for a pull and writes its rows, in the caller's order, as f32. */
void rows_take(struct rows_rig *r, const struct rows_asked *pull, float *ret_rows);
/* Marks all memory of the rank's region as free. */
void rows_forget_memory(struct rows_rig *r, uint32_t rank);
/* Sends a record to a lane. */
void rows_send(struct rows_rig *r, uint32_t lane, uint32_t rank, const void *record, size_t bytes);
/* Returns the record of a request for a lane. */
struct record_rows rows_record(const struct rows_rig *r, const struct rows_asked *asked,
                               uint32_t lane, enum record_rows_operation operation);
/* Writes a request into the worker's memory, without sending its records. */
struct rows_asked *rows_lay(struct rows_rig *r, uint32_t rank, const uint64_t *keys, size_t count,
                            const float *gradients);
void rows_turn_all(struct rows_rig *r);
/* Runs all lanes until nothing more happens. */
void rows_settle(struct rows_rig *r);
/* Returns the number of rows that the lanes store. */
uint64_t rows_stored(const struct rows_rig *r);

#endif
