/* Tests a worker that breaks every rule. Its records have random fields, and the worker writes to
 * its lent memory at any moment of an update or a pull. The lane must continue, and every stored
 * row must be found by its key. Either the job fails with a reason, or the other worker's requests
 * are answered. */
#include "svc/lane/job/table.h"
#include "svc/lane/rows/table.h"
#include "svc/wire/mixed_key.h"
#include "test/lib/extent.h"
#include "test/unit/lane/rows/rows_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIM 3
#define KEYS 400
#define CLOCKS 6
#define TURNS 200
#define REGION_BYTES (512u << 10)

static const struct row_settings settings = {.rate = 0.25, .epsilon = 1e-8};
static const struct table_terms users = {
    .dim = DIM, .shards = 8, .dtype = REDUCE_F32, .rule = TABLE_TERMS_ADAGRAD};

static struct rows_rig rig;
static uint64_t state;

static uint64_t draw(uint64_t below) { return mixed_key(state++, 7) % below; }

static const struct lane_job *job(void) { return job_find(rig.lanes[0].lane, RIG_JOB); }

/* A request of random keys. */
static struct rows_asked *ask(uint32_t rank, bool pushes)
{
    uint64_t keys[KEYS];
    float gradients[KEYS * DIM];
    size_t count = 1 + draw(KEYS);
    for (size_t i = 0; i < count; i++)
        keys[i] = draw(1000);
    for (size_t i = 0; i < count * DIM; i++)
        gradients[i] = (float)draw(100) - 50;
    return pushes ? rows_push(&rig, rank, keys, count, gradients)
                  : rows_pull(&rig, rank, keys, count);
}

/* ---- the hostile worker, rank 0 ---- */

/* Returns a limit of an integer type, or a value near `value`. */
static uint64_t strange(uint64_t value)
{
    const uint64_t limits[] = {0,          1,          value + 1,      value - 1, UINT32_MAX,
                               UINT64_MAX, INT64_MAX,  value ^ 1 << 7, 8,         REGION_BYTES,
                               4096,       1ull << 20, draw(1 << 16)};
    return limits[draw(sizeof limits / sizeof *limits)];
}

static void spoil_rows(struct record_rows *r)
{
    switch (draw(9)) {
    case 0: r->clock = strange(r->clock); break;
    case 1: r->sequence = strange(r->sequence); break;
    case 2: r->spans = (uint32_t)strange(r->spans); break;
    case 3: r->keys = (uint32_t)strange(r->keys); break;
    case 4: r->directory_offset = strange(r->directory_offset); break;
    case 5: r->keys_offset = strange(r->keys_offset); break;
    case 6: r->rows_offset = strange(r->rows_offset); break;
    case 7: r->dim = (uint32_t)strange(r->dim); break;
    default: r->keys_region = (uint32_t)strange(r->keys_region);
    }
}

/* Changes 4 or 8 bytes of the memory that requests use. */
static void spoil_memory(void)
{
    uint64_t used = rig.workers[0].used;
    char *at = (char *)rig_input(&rig.lanes[0], 0, draw(used / 8 + 1) * 8);
    uint64_t value;
    memcpy(&value, at, sizeof value);
    value = draw(2) ? strange(value) : value << 32 | draw(UINT32_MAX);
    memcpy(at, &value, draw(2) ? 4 : 8);
}

static bool is_connected(uint32_t rank) { return !rig.lanes[0].workers[rank].is_closed; }

static void send_spoiled(void)
{
    struct rows_asked *asked = ask(0, draw(2));
    struct record_rows record = rows_record(&rig, asked, 0, draw(2) ? RECORD_PUSH : RECORD_PULL);
    record.sequence = worker_clock_next_request(&rig.workers[0].clock);
    spoil_rows(&record);
    if (is_connected(0))
        (void)fabric_send(rig.lanes[0].workers[0].conn, &record, sizeof record, NULL, 0);
    rows_asked_free(asked);
}

/* ---- one run ---- */

/* Checks that every stored row has a key of its shard, and is found by this key. */
static void check_store(void)
{
    const struct lane_table *table = table_find(job(), ROWS_TABLE);
    for (uint32_t number = 0; number < rig.terms.shards; number++) {
        const struct table_shard *store = table_shard_at(table, number)->store;
        uint32_t *rows = calloc(store->rows.count + 1, sizeof *rows);
        size_t count = table_shard_walk(store, 0, rows, store->rows.count + 1);
        assert_int_equal(count, store->rows.count);
        for (size_t i = 0; i < count; i++) {
            uint64_t mixed = rows_key(&store->rows, rows[i]);
            uint32_t found;
            assert_int_equal(mixed_key_shard(mixed, table->shard_bits), number);
            table_shard_find(store, &mixed, 1, &found);
            assert_int_equal(found, rows[i]);
        }
        free(rows);
    }
}

static void turn_and_spoil(void)
{
    for (uint64_t turns = draw(6); turns > 0; turns--) {
        rig_turn(&rig.lanes[0]);
        if (draw(3) == 0)
            spoil_memory();
    }
}

/* Waits for the request, or for the failure of the job. */
static void end_or_fail(const struct rows_asked *asked)
{
    uint64_t deadline_ns = rig_now() + UINT64_C(60000000000);
    while (!rows_is_done(&rig, asked) && !job()->failure &&
           rig.lanes[0].workers[1].errors_count == 0) {
        rows_turn_all(&rig);
        if (draw(4) == 0)
            spoil_memory();
        assert_true(rig_now() < deadline_ns);
    }
}

static void run_clock(bool spoils)
{
    struct rows_asked *honest = ask(1, true);
    rows_asked_free(ask(0, draw(2)));
    turn_and_spoil();
    if (spoils && !job()->failure)
        send_spoiled();
    turn_and_spoil();
    if (!job()->failure) {
        rows_clock(&rig, 0);
        rows_clock(&rig, 1);
        end_or_fail(honest);
    }
    rows_asked_free(honest);
    rig.workers[0].used = rig.workers[1].used = 0;
}

/* Returns whether the job has failed. */
static bool run(uint64_t seed)
{
    state = seed << 32;
    rows_start(&rig, 1, 2, &users);
    rows_set(&rig, &settings);
    bool spoils = draw(2);
    for (int clock = 0; clock < CLOCKS && !job()->failure && is_connected(0); clock++)
        run_clock(spoils && draw(3) == 0);
    for (int i = 0; i < TURNS; i++)
        rig_turn(&rig.lanes[0]);
    int failure = job()->failure;
    assert_true(failure == 0 || failure == -EPROTO);
    assert_true(failure == 0 || job()->failure_text[0]);
    check_store();
    rows_stop(&rig);
    return failure;
}

static void a_hostile_worker_harms_its_own_job_only(void **state_)
{
    uint32_t runs = extent(150, 60, 3000), failed = 0;
    if (!rows_are_mapped())
        runs /= 3; /* over a network a start takes longer, and most jobs fail */
    for (uint64_t seed = 1; seed <= runs; seed++)
        failed += run(seed);
    print_message("%u of %u jobs failed\n", failed, runs);
    assert_true(failed > runs / 10 && (failed < runs || !rows_are_mapped()));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hostile_worker_harms_its_own_job_only),
    };
    rows_set_kind(argc, argv);
    rows_region_bytes = REGION_BYTES;
    return cmocka_run_group_tests_name(rows_kind, tests, NULL, NULL);
}
