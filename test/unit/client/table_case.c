/* See table_case.h. */
#include "test/unit/client/table_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

gp_table *t[WORKERS];
uint64_t keys[KEYS];
float rows[KEYS][DIM], gradients[KEYS][DIM];

const gp_table_spec usual = {
    .name = "users", .dim = DIM, .shards = 8, .dtype = GP_F32, .rule = GP_ROW_SGD};
const gp_row_settings rate = {.rate = 0.5};

void use_lanes(uint32_t first, uint32_t count)
{
    script_lock(&rig);
    rig.tables.first_lane = first;
    rig.tables.lanes = count;
    script_unlock(&rig);
}

void hold_answers(bool holds)
{
    script_lock(&rig);
    rig.tables.holds_answers = holds;
    script_table_answer(&rig);
    script_unlock(&rig);
}

void declare_tables(uint32_t lanes)
{
    use_lanes(0, lanes);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_table_declare(jobs[rank], &usual, &t[rank]));
}

/* Fills `keys`; every third key is a repetition. */
static void fill_keys(void)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i % 3 == 2 ? keys[i - 2] : 7 * i + 1;
        for (uint32_t e = 0; e < DIM; e++)
            gradients[i][e] = (float)(i % 5) + (float)e;
    }
}

gp_batch *batch_of(gp_table *table, size_t count)
{
    gp_batch *batch;
    fill_keys();
    ok(gp_batch_create(table, keys, count, &batch));
    return batch;
}

void check_rows(size_t count, uint64_t clock)
{
    for (size_t i = 0; i < count; i++) {
        assert_float_equal(rows[i][0], (float)keys[i] + (float)clock / 1024, 0);
        assert_float_equal(rows[i][1], -1, 0);
    }
}

void end_clocks(void)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        ok(gp_clock(jobs[rank]));
}

void pull_and_check(gp_batch *batch, size_t count, uint64_t clock)
{
    gp_request *request;
    memset(rows, 0, sizeof rows);
    ok(gp_pull(batch, rows, &request));
    ok(gp_wait(request, WAIT_MS));
    check_rows(count, clock);
}

struct script_tables *wait_records(uint32_t count)
{
    script_lock(&rig);
    while (rig.tables.records_count < count)
        script_wait(&rig);
    return &rig.tables;
}
