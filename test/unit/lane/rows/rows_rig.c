/* See rows_rig.h. */
#include "test/unit/lane/rows/rows_rig.h"

#include "svc/lane/job/table.h"
#include "svc/lane/rows/table.h"
#include "svc/wire/mixed_key.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *rows_kind = "shm";
size_t rows_region_bytes = RIG_REGION_BYTES;

void rows_set_kind(int argc, char **argv) { rows_kind = argc > 1 ? argv[1] : "shm"; }

bool rows_are_mapped(void) { return strcmp(rows_kind, "shm") == 0; }

static void rows_route(struct rows_rig *r)
{
    uint32_t shards = r->terms.shards;
    r->route = (struct table_route){.table = ROWS_TABLE,
                                    .salt = ROWS_SALT,
                                    .shard_bits = (uint32_t)__builtin_ctz(shards),
                                    .shards = calloc(shards, sizeof *r->route.shards),
                                    .lanes = calloc(shards, sizeof *r->route.lanes),
                                    .lanes_count = r->lanes_count};
    for (uint32_t i = 0; i < shards; i++)
        r->route.shards[i] = (struct shard_route){
            .lane = i % r->lanes_count, .epoch = ROWS_EPOCH, .place = i % r->lanes_count};
    for (uint32_t lane = 0; lane < r->lanes_count; lane++)
        r->route.lanes[lane] = lane;
}

static void rows_place(struct rows_rig *r, uint32_t lane)
{
    struct lane_table_spec table = {ROWS_TABLE, "users", &r->terms, ROWS_SALT};
    struct lane_shard_spec *shards = calloc(r->terms.shards, sizeof *shards);
    size_t count = 0;
    for (uint32_t i = lane; i < r->terms.shards; i += r->lanes_count)
        shards[count++] = (struct lane_shard_spec){i, ROWS_EPOCH};
    assert_int_equal(lane_place_table(r->lanes[lane].lane, RIG_JOB, &table, shards, count), 0);
    free(shards);
}

static void rows_start_lane(struct rows_rig *r, uint32_t lane, const char *kind)
{
    struct rig *rig = &r->lanes[lane];
    rig_start(rig, kind);
    rig->region_bytes = rows_region_bytes;
    assert_int_equal(lane_place(rig->lane, RIG_JOB, "job", r->workers_count, 1, false, NULL, 0), 0);
    if (!r->has_no_table)
        rows_place(r, lane);
    rig->count = r->workers_count - r->absent_count;
    for (uint32_t rank = 0; rank < rig->count; rank++)
        rig_connect(rig, rank, RIG_JOB, rank);
}

static void rows_init(struct rows_rig *r, uint32_t lanes, uint32_t workers,
                      const struct table_terms *terms)
{
    *r = (struct rows_rig){
        .lanes_count = lanes, .workers_count = workers, .terms = table_terms_filled(*terms)};
    rows_route(r);
}

void rows_start(struct rows_rig *r, uint32_t lanes, uint32_t workers,
                const struct table_terms *terms)
{
    rows_init(r, lanes, workers, terms);
    for (uint32_t lane = 0; lane < lanes; lane++)
        rows_start_lane(r, lane, rows_kind);
}

void rows_start_without_last(struct rows_rig *r, uint32_t workers, const struct table_terms *terms)
{
    rows_init(r, 1, workers, terms);
    r->absent_count = 1;
    rows_start_lane(r, 0, rows_kind);
}

void rows_start_without_table(struct rows_rig *r, uint32_t workers, const struct table_terms *terms)
{
    rows_init(r, 1, workers, terms);
    r->has_no_table = true;
    rows_start_lane(r, 0, rows_kind);
}

void rows_stop(struct rows_rig *r)
{
    for (uint32_t lane = 0; lane < r->lanes_count; lane++)
        rig_stop(&r->lanes[lane]);
    table_route_fini(&r->route);
}

void rows_turn_all(struct rows_rig *r)
{
    for (uint32_t lane = 0; lane < r->lanes_count; lane++)
        rig_turn_gently(&r->lanes[lane]);
}

void rows_settle(struct rows_rig *r)
{
    for (uint32_t lane = 0; lane < r->lanes_count; lane++)
        rig_settle(&r->lanes[lane]);
}

void rows_send(struct rows_rig *r, uint32_t lane, uint32_t rank, const void *record, size_t bytes)
{
    struct rig *rig = &r->lanes[lane];
    int error;
    while ((error = fabric_send(rig->workers[rank].conn, record, bytes, NULL, 0)) == -EAGAIN)
        rig_turn(rig);
    assert_int_equal(error, 0);
}

void rows_set(struct rows_rig *r, const struct row_settings *s)
{
    struct record_clock record = {.kind = RECORD_CLOCK,
                                  .form = RECORD_CLOCK_SETTINGS,
                                  .clock = worker_clock_now(&r->workers[0].clock),
                                  .settings = {.rate = s->rate,
                                               .weight_decay = s->weight_decay,
                                               .beta1 = s->beta1,
                                               .beta2 = s->beta2,
                                               .epsilon = s->epsilon,
                                               .beta = s->beta,
                                               .l1 = s->l1,
                                               .l2 = s->l2,
                                               .table = r->route.table}};
    for (uint32_t lane = 0; lane < r->lanes_count; lane++)
        rows_send(r, lane, 0, &record, sizeof record);
}

/* Returns the memory of a request. This memory has the same offset in the worker's region on every
 * lane. */
static struct request_memory rows_memory(struct rows_rig *r, uint32_t rank, uint32_t keys)
{
    struct rows_worker *w = &r->workers[rank];
    size_t bytes = table_request_bytes(keys, r->terms.shards, r->terms.wire, r->terms.dim);
    struct request_memory memory = {
        .base = (char *)rig_input(&r->lanes[0], rank, w->used), .offset = w->used, .bytes = bytes};
    w->used += (bytes + 63) / 64 * 64;
    assert_true(w->used <= rows_region_bytes);
    return memory;
}

/* Rounds gradients to the wire's dtype once, like a client. */
static void rows_fold(const struct rows_rig *r, const struct rows_asked *asked,
                      const float *gradients)
{
    size_t elements = (size_t)asked->keys.positions * r->terms.dim;
    char *wire = malloc(elements * reduce_element_bytes(r->terms.wire) + 1);
    reduce_convert(REDUCE_F32, r->terms.wire, gradients, wire, elements);
    table_fold(&asked->keys, r->terms.wire, r->terms.dim, wire,
               table_request_rows(&asked->request));
    free(wire);
}

struct rows_asked *rows_lay(struct rows_rig *r, uint32_t rank, const uint64_t *keys, size_t count,
                            const float *gradients)
{
    struct rows_asked *asked = calloc(1, sizeof *asked);
    struct table_span *spans = calloc(r->terms.shards, sizeof *spans);
    asked->rank = rank;
    asked->word = ++r->workers[rank].word;
    assert_int_equal(table_keys_set(&asked->keys, keys, count, 0, ROWS_SALT, NULL), 0);
    struct request_memory memory = rows_memory(r, rank, asked->keys.count);
    assert_int_equal(table_request_lay(&asked->keys, &r->route, r->terms.wire, r->terms.dim,
                                       &memory, spans, asked->parts, &asked->request),
                     0);
    if (gradients)
        rows_fold(r, asked, gradients);
    for (uint32_t lane = 1; lane < r->lanes_count; lane++)
        memcpy(rig_input(&r->lanes[lane], rank, memory.offset), memory.base, memory.bytes);
    free(spans);
    return asked;
}

static const struct request_part *rows_part(const struct rows_asked *asked, uint32_t lane)
{
    for (uint32_t i = 0; i < asked->request.parts_count; i++)
        if (asked->request.parts[i].lane == lane)
            return &asked->request.parts[i];
    return NULL;
}

struct record_rows rows_record(const struct rows_rig *r, const struct rows_asked *asked,
                               uint32_t lane, enum record_rows_operation operation)
{
    const struct worker_clock *clock = &r->workers[asked->rank].clock;
    return table_request_record(&asked->request, rows_part(asked, lane), operation, r->route.table,
                                asked->word, worker_clock_now(clock), clock->sequence);
}

static struct rows_asked *rows_ask(struct rows_rig *r, struct rows_asked *asked,
                                   enum record_rows_operation operation)
{
    worker_clock_next_request(&r->workers[asked->rank].clock);
    for (uint32_t lane = 0; lane < r->lanes_count; lane++) {
        if (!rows_part(asked, lane))
            continue;
        struct record_rows record = rows_record(r, asked, lane, operation);
        rows_send(r, lane, asked->rank, &record, sizeof record);
    }
    return asked;
}

struct rows_asked *rows_push(struct rows_rig *r, uint32_t rank, const uint64_t *keys, size_t count,
                             const float *gradients)
{
    return rows_ask(r, rows_lay(r, rank, keys, count, gradients), RECORD_PUSH);
}

struct rows_asked *rows_pull(struct rows_rig *r, uint32_t rank, const uint64_t *keys, size_t count)
{
    return rows_ask(r, rows_lay(r, rank, keys, count, NULL), RECORD_PULL);
}

void rows_asked_free(struct rows_asked *asked)
{
    table_keys_fini(&asked->keys);
    free(asked);
}

void rows_clock(struct rows_rig *r, uint32_t rank)
{
    const uint32_t table = r->route.table;
    struct record_clock record;
    assert_int_equal(worker_clock_end(&r->workers[rank].clock), 0);
    worker_clock_record(&r->workers[rank].clock, RECORD_CLOCK_ENDED, &table, 1, 0, &record);
    for (uint32_t lane = 0; lane < r->lanes_count; lane++)
        rows_send(r, lane, rank, &record, sizeof record);
}

static bool has_word(const struct rig_worker *w, uint32_t word)
{
    int count = w->words_count < 4096 ? w->words_count : 4096;
    for (int i = 0; i < count; i++)
        if (w->words[i] == word)
            return true;
    return false;
}

bool rows_is_done(const struct rows_rig *r, const struct rows_asked *asked)
{
    for (uint32_t lane = 0; lane < r->lanes_count; lane++)
        if (rows_part(asked, lane) && !has_word(&r->lanes[lane].workers[asked->rank], asked->word))
            return false;
    return true;
}

void rows_wait(struct rows_rig *r, const struct rows_asked *asked)
{
    uint64_t deadline_ns = rig_now() + UINT64_C(60000000000);
    while (!rows_is_done(r, asked)) {
        rows_turn_all(r);
        if (rig_now() > deadline_ns)
            fail_msg("no word %u for rank %u", asked->word, asked->rank);
    }
}

/* Collects the rows of a pull from the mappings of all lanes. Each lane has written the rows of its
 * shards to the same offset of its own mapping. */
static void rows_gather(const struct rows_rig *r, const struct rows_asked *pull, char *ret_rows)
{
    size_t row_bytes = r->terms.dim * reduce_element_bytes(r->terms.wire);
    uint64_t at = pull->request.memory.offset + pull->request.rows_at;
    for (uint32_t i = 0; i < pull->keys.count; i++) {
        uint32_t shard = mixed_key_shard(pull->keys.mixed[i], r->route.shard_bits);
        const struct rig *lane = &r->lanes[r->route.shards[shard].place];
        const char *region = lane->workers[pull->rank].region.base;
        memcpy(ret_rows + i * row_bytes, region + at + i * row_bytes, row_bytes);
    }
}

void rows_take(struct rows_rig *r, const struct rows_asked *pull, float *ret_rows)
{
    size_t row_bytes = r->terms.dim * reduce_element_bytes(r->terms.wire);
    char *rows = malloc(pull->keys.count * row_bytes + 1);
    char *spread = malloc(pull->keys.positions * row_bytes + 1);
    rows_wait(r, pull);
    rows_gather(r, pull, rows);
    table_spread(&pull->keys, row_bytes, rows, spread);
    reduce_convert(r->terms.wire, REDUCE_F32, spread, ret_rows,
                   (size_t)pull->keys.positions * r->terms.dim);
    free(rows);
    free(spread);
}

void rows_forget_memory(struct rows_rig *r, uint32_t rank) { r->workers[rank].used = 0; }

uint64_t rows_stored(const struct rows_rig *r)
{
    uint64_t count = 0;
    for (uint32_t lane = 0; lane < r->lanes_count; lane++) {
        const struct lane_job *job = job_find(r->lanes[lane].lane, RIG_JOB);
        const struct lane_table *table = table_find(job, r->route.table);
        for (uint32_t i = 0; i < r->terms.shards; i++)
            if (table_shard_at(table, i))
                count += table_shard_at(table, i)->store->rows.count;
    }
    return count;
}
