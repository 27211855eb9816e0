/* See rows_case.h. */
#include "test/unit/lane/rows/rows_case.h"

#include "svc/lane/job/table.h"
#include "svc/lane/types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

const struct row_settings settings = {.rate = 0.25};
const struct table_terms users = {.dim = DIM,
                                  .shards = 4,
                                  .dtype = REDUCE_F32,
                                  .rule = TABLE_TERMS_SGD,
                                  .initial = TABLE_TERMS_CONSTANT,
                                  .initial_value = START};
const uint64_t keys[KEYS] = {7, 1, 900, 12};
const float ones[KEYS * DIM] = {1, 1, 1, 1, 1, 1, 1, 1};

struct rows_rig rig;

void start(uint32_t workers)
{
    rows_start(&rig, 1, workers, &users);
    rows_set(&rig, &settings);
}

struct rig_worker *worker(uint32_t rank) { return &rig.lanes[0].workers[rank]; }

/* Waits for the pull, and checks that every element of every row has this value. */
void rows_are(struct rows_asked *pull, float value)
{
    float rows[KEYS * DIM];
    rows_take(&rig, pull, rows);
    for (int i = 0; i < KEYS * DIM; i++)
        assert_float_equal(rows[i], value, 0);
    rows_asked_free(pull);
}

void push_ones(uint32_t rank) { rows_asked_free(rows_push(&rig, rank, keys, KEYS, ones)); }

struct record_clock settings_record(double rate)
{
    return (struct record_clock){.kind = RECORD_CLOCK,
                                 .form = RECORD_CLOCK_SETTINGS,
                                 .clock = 1,
                                 .settings = {.rate = rate, .table = ROWS_TABLE}};
}

/* Checks that the job fails on the lane with this code and text, and that the other worker receives
 * the failure. */
void fails_in_midst(int code, const char *words)
{
    rig_until(&rig.lanes[0], worker(1)->errors_count > 0);
    const struct lane_job *job = job_find(rig.lanes[0].lane, RIG_JOB);
    if (!strstr(job->failure_text, words))
        fail_msg("'%s' does not say '%s'", job->failure_text, words);
    assert_int_equal(job->failure, code);
    assert_int_equal(worker(1)->error.word, RECORD_WORD_NONE);
    assert_int_equal(worker(1)->error.code, code);
    assert_true(rig.lanes[0].failures >= 1);
}

/* Checks that the job fails, and that no row was created. Stops the rig. */
void fails(int code, const char *words)
{
    fails_in_midst(code, words);
    assert_int_equal(rows_stored(&rig), 0);
    rows_stop(&rig);
}
