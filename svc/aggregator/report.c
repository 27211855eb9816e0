/* Reports about all lanes of the process: failures, lost ranks, connections, pieces. */
#include "svc/aggregator/internal.h"
#include "svc/lane/job/job_types.h"
#include "svc/lane/move/regroup.h"
#include "svc/lane/rows/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct failed_row {
    uint32_t job, rank, entered;
    /* error of a failed job; 0: the row is about a lost worker, whose job may continue */
    int code;
    bool may_return; /* the lost worker may connect again */
    char text[ERR_TEXT_BYTES];
};

struct failures {
    struct failed_row *rows;
    size_t count, room;
};

/* Adds a row. If memory is missing, the row is dropped; the next report includes this failure. */
static void add_failure(void *context, uint32_t job, int code, const char *text)
{
    struct failures *failures = context;
    if (failures->count == failures->room) {
        size_t room = failures->room ? failures->room * 2 : 8;
        void *rows = realloc(failures->rows, room * sizeof *failures->rows);
        if (!rows)
            return;
        failures->rows = rows;
        failures->room = room;
    }
    struct failed_row *row = &failures->rows[failures->count++];
    *row = (struct failed_row){.job = job, .code = code};
    snprintf(row->text, sizeof row->text, "%s", text);
}

static void add_lost(void *context, const struct lane_lost *lost)
{
    struct failures *failures = context;
    size_t count = failures->count;
    add_failure(failures, lost->job, 0, lost->peer);
    if (failures->count == count)
        return;
    failures->rows[count].rank = lost->rank;
    failures->rows[count].entered = lost->entered;
    failures->rows[count].may_return = lost->may_return;
}

static int collect_failures(struct lane *lane, void *context)
{
    lane_each_failure(lane, add_failure, context);
    lane_each_lost(lane, add_lost, context);
    return 0;
}

/* Sends a row. A row without a code is a lost worker, which is no failure in an elastic job. */
static int send_failure(struct aggregator *a, uint32_t lane, const struct failed_row *row)
{
    char *text = (char *)row->text;
    if (row->code)
        return serve_answer(a, 0, LANE_FAILURE, lane_failure, .lane = lane, .job_id = row->job,
                            .code = row->code, .text = text);
    return serve_answer(a, 0, WORKER_LOST, worker_lost, .lane = lane, .job_id = row->job,
                        .rank = row->rank, .entered = row->entered, .may_return = row->may_return,
                        .text = text);
}

int serve_failures(struct aggregator *a)
{
    int error = 0;
    for (size_t i = 0; i < a->lanes_count && error == 0; i++) {
        struct failures failures = {0};
        lane_thread_call(a->lanes[i], collect_failures, &failures);
        for (size_t k = 0; k < failures.count && error == 0; k++)
            error = send_failure(a, a->lane_ids[i], &failures.rows[k]);
        free(failures.rows);
    }
    return error;
}

static int count_connections(struct lane *lane, void *context)
{
    *(size_t *)context += lane_connections(lane);
    return 0;
}

size_t serve_connections(struct aggregator *a)
{
    size_t connections = 0;
    for (size_t i = 0; i < a->lanes_count; i++)
        lane_thread_call(a->lanes[i], count_connections, &connections);
    return connections;
}

struct ending {
    int code;
    const char *text;
};

static int end_jobs(struct lane *lane, void *context)
{
    const struct ending *ending = context;
    lane_fail_jobs(lane, ending->code, ending->text);
    return 0;
}

void serve_end_jobs(struct aggregator *a, int code, const char *text)
{
    struct ending ending = {code, text};
    for (size_t i = 0; i < a->lanes_count; i++)
        lane_thread_call(a->lanes[i], end_jobs, &ending);
}

struct held {
    Gradpool__Wire__PieceHeld **rows;
    size_t count, room;
    uint32_t lane;
    int error;
};

static void add_held(void *context, const struct lane_held *piece)
{
    struct held *held = context;
    if (held->count == held->room) {
        size_t room = held->room ? held->room * 2 : 64;
        void *rows = realloc(held->rows, room * sizeof *held->rows);
        if (!rows) {
            held->error = -ENOMEM;
            return;
        }
        held->rows = rows;
        held->room = room;
    }
    Gradpool__Wire__PieceHeld *row = malloc(sizeof *row);
    if (!row) {
        held->error = -ENOMEM;
        return;
    }
    *row = MESSAGE_PART(PieceHeld, piece_held, .job_id = piece->job, .piece = piece->piece,
                        .lane = held->lane, .epoch = piece->epoch, .is_frozen = piece->is_frozen);
    held->rows[held->count++] = row;
}

static int collect_held(struct lane *lane, void *context)
{
    lane_each_piece(lane, add_held, context);
    return 0;
}

int serve_held(struct aggregator *a, Gradpool__Wire__PieceHeld ***ret_rows, size_t *ret_count)
{
    struct held held = {0};
    for (size_t i = 0; i < a->lanes_count; i++) {
        held.lane = a->lane_ids[i];
        lane_thread_call(a->lanes[i], collect_held, &held);
    }
    if (held.error < 0) {
        serve_held_free(held.rows, held.count);
        return held.error;
    }
    *ret_rows = held.rows;
    *ret_count = held.count;
    return 0;
}

void serve_held_free(Gradpool__Wire__PieceHeld **rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(rows[i]);
    free(rows);
}

/* Rows for the tables on all lanes, one row for each table on a lane. A lane lists all shards of a
 * table one after the other, so a shard belongs to the last row or to a new row. */
struct held_tables {
    Gradpool__Wire__TableHeld **rows;
    size_t count, room;
    uint32_t lane;
    int error;
};

/* Grows the array for one more element. The capacity is a power of two. */
static void *held_grow(void *array, size_t count, size_t element_bytes)
{
    bool is_full = count == 0 || (count >= 64 && (count & (count - 1)) == 0);
    size_t room = count == 0 ? 64 : 2 * count;
    return is_full ? reallocarray(array, room, element_bytes) : array;
}

static Gradpool__Wire__TableHeld *held_table(struct held_tables *held,
                                             const struct lane_held_shard *shard)
{
    Gradpool__Wire__TableHeld *last = held->count > 0 ? held->rows[held->count - 1] : NULL;
    if (last && last->lane == held->lane && last->job_id == shard->job &&
        last->table == shard->table)
        return last;
    void *rows = held_grow(held->rows, held->count, sizeof *held->rows);
    if (!rows)
        return NULL;
    held->rows = rows;
    Gradpool__Wire__TableHeld *row = malloc(sizeof *row);
    if (!row)
        return NULL;
    *row = MESSAGE_PART(TableHeld, table_held, .job_id = shard->job, .table = shard->table,
                        .lane = held->lane, .allowed_bytes = shard->allowed_bytes);
    return held->rows[held->count++] = row;
}

static void add_held_shard(void *context, const struct lane_held_shard *shard)
{
    struct held_tables *held = context;
    Gradpool__Wire__TableHeld *row = held_table(held, shard);
    uint32_t *shards = row ? held_grow(row->shards, row->n_shards, sizeof *shards) : NULL;
    if (shards)
        row->shards = shards;
    uint32_t *epochs = shards ? held_grow(row->epochs, row->n_epochs, sizeof *epochs) : NULL;
    if (!epochs) {
        held->error = -ENOMEM;
        return;
    }
    row->epochs = epochs;
    row->shards[row->n_shards++] = shard->shard;
    row->epochs[row->n_epochs++] = shard->epoch;
}

static int collect_held_shards(struct lane *lane, void *context)
{
    lane_each_shard(lane, add_held_shard, context);
    return 0;
}

int serve_held_tables(struct aggregator *a, Gradpool__Wire__TableHeld ***ret_rows,
                      size_t *ret_count)
{
    struct held_tables held = {0};
    for (size_t i = 0; i < a->lanes_count; i++) {
        held.lane = a->lane_ids[i];
        lane_thread_call(a->lanes[i], collect_held_shards, &held);
    }
    if (held.error < 0) {
        serve_held_tables_free(held.rows, held.count);
        return held.error;
    }
    *ret_rows = held.rows;
    *ret_count = held.count;
    return 0;
}

void serve_held_tables_free(Gradpool__Wire__TableHeld **rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(rows[i]->shards);
        free(rows[i]->epochs);
        free(rows[i]);
    }
    free(rows);
}
